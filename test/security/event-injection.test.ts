import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { run } from '../../src/cli/run.js';
import { type NewEvent, recordEvents } from '../../src/registry/events/repository.js';
import { onEachDatabase } from '../database/each-database.js';
import { registryFixture, token } from '../registry/registry-fixture.js';

const forgedLine = '{"event":{"action":"key.revoked","sequence":1}}';

/** Texts that would begin another line, or change what a terminal shows. */
const hostile = [
  ...[`x\n${forgedLine}`, `x\r\n${forgedLine}\r\n`, `"}}\n${forgedLine}`, `\u2028${forgedLine}\u2029`, `\u0085x`],
  ...['\u001b[2J\u001b[H', '\u001b]0;title\u0007', '\u001b]52;c;ZXZpbA==\u0007', '\u009b2J', '\u0090q\u009c', '\b\b\b'],
  ...['\u202eyek\u202c', '\u2066x\u2069', '\u200fx', '\ufeffx', '\u061cx', '\u007f', '\\u000a\\n', '\\'],
];

// What a terminal or a reader of lines interprets, except the ends of the lines themselves.
const interpreted = /[^\P{Cc}\n]|[\p{Cs}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/u;

async function exportAt(t: Test, url: string, ...args: string[]) {
  let [out, err] = ['', ''];
  const file = `${t.testdir({ token })}/token`;
  const io = { out: (text: string) => (out += text), err: (text: string) => (err += text), isTerminal: true };
  const status = await run(['events', 'export', '--registry', url, '--token-file', file, ...args], io);
  return { status, out, err };
}

onEachDatabase('no text of an event adds a line or a terminal escape to an export', async (t, url) => {
  const { app, database } = await registryFixture(t, url);
  const address = await app.listen({ host: '127.0.0.1', port: 0 });
  for (const text of hostile) {
    const author = {
      ...{ actor: text, administratorId: text, proof: text, claimed: text },
      ...{ source: text, requestId: text, reason: text },
    };
    const state = { [text]: text, nested: [text, '\u0000'] };
    const event: NewEvent = { action: 'merchant.changed', merchantId: text, keyId: text, before: state, after: state };
    await recordEvents(database, [event], { at: 0, author, revision: 1 });
  }
  const { status, out } = await exportAt(t, address);
  t.equal(status, 0);
  t.notMatch(out, interpreted);
  const lines = out.split('\n');
  t.equal(lines.pop(), '');
  t.equal(lines.length, hostile.length + 1, 'one line for each event, and for the export');
  for (const [index, text] of hostile.entries()) {
    const state = JSON.stringify({ [text]: text, nested: [text, '\u0000'] });
    t.same(
      JSON.parse(lines[index] ?? ''),
      {
        ...(JSON.parse(lines[index] ?? '') as object),
        user: { id: text, name: text },
        source: { ip: text },
        http: { request: { id: text } },
        organization: { id: text },
        gateway: { key: { id: text }, revision: 1, proof: text, claimed: text, before: state, after: state },
      },
      `text ${index} is exported unchanged`,
    );
    t.match(JSON.parse(lines[index] ?? ''), {
      event: { action: 'merchant.changed', reason: text, sequence: index + 1 },
    });
  }
  const file = `${t.testdir({})}/events`;
  t.equal((await exportAt(t, address, '--who', 'nobody', '--output', `${file}-empty`)).status, 0);
  t.equal((await exportAt(t, address, '--until', '1970-01-01T00:00:01Z', '--output', file)).status, 0);
  t.equal(readFileSync(file, 'utf8'), `${lines.slice(0, -1).join('\n')}\n`, 'the same in a file');
});

t.test('neither lines nor messages of a hostile registry reach the terminal unescaped', async (t) => {
  const text = hostile.join('');
  const fields = { at: text, actor: text, action: text, merchantId: text, keyId: text, before: { [text]: text } };
  const others = { administratorId: text, proof: text, claimed: text, source: text, requestId: text, reason: text };
  let message: string | null = null;
  const server = http.createServer((request, response) => {
    const page = { events: [{ ...fields, ...others, seq: 1, after: null, revision: 1, hash: text }], next: null };
    const data = request.method === 'POST' ? { seq: 1, after: 0 } : page;
    response.writeHead(message === null ? 200 : 500, { 'content-type': 'application/json' });
    response.end(JSON.stringify(message === null ? { success: true, data } : { success: false, message, data: null }));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { out } = await exportAt(t, url);
  t.notMatch(out, interpreted);
  t.equal(out.split('\n').length - 1, out === '' ? 0 : 1);
  message = text;
  const { status, err } = await exportAt(t, url);
  t.equal(status, 1);
  t.notMatch(err, interpreted);
});
