import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import t, { type Test } from 'tap';
import { run } from '../../src/cli/run.js';
import { newToken } from '../../src/registry/administrators/token-text.js';
import { type NewEvent, recordEvents } from '../../src/registry/events/repository.js';
import type { RegistryEvent } from '../../src/registry/events/schema.js';
import { onEachDatabase } from '../database/each-database.js';
import { until } from '../registry/manual-time.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { startServer } from '../start-server.js';

const forgedLine = '{"event":{"action":"key.revoked","sequence":1}}';

/** Texts that would begin another line, or change what a terminal shows. */
const hostile = [
  ...[`x\n${forgedLine}`, `x\r\n${forgedLine}\r\n`, `"}}\n${forgedLine}`, `\u2028${forgedLine}\u2029`, `\u0085x`],
  ...['\u001b[2J\u001b[H', '\u001b]0;title\u0007', '\u001b]52;c;ZXZpbA==\u0007', '\u009b2J', '\u0090q\u009c', '\b\b\b'],
  ...['\u202eyek\u202c', '\u2066x\u2069', '\u200fx', '\ufeffx', '\u061cx', '\u007f', '\\u000a\\n', '\\'],
];

// Characters that a terminal or a reader of lines interprets, except the ends of the lines themselves.
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
  const url = await startServer(t, (request, response) => {
    const page = { events: [{ ...fields, ...others, seq: 1, after: null, revision: 1, hash: text }], next: null };
    const data = request.method === 'POST' ? { seq: 1, after: 0 } : page;
    response.writeHead(message === null ? 200 : 500, { 'content-type': 'application/json' });
    response.end(JSON.stringify(message === null ? { success: true, data } : { success: false, message, data: null }));
  });
  const { out } = await exportAt(t, url);
  t.notMatch(out, interpreted);
  t.equal(out.split('\n').length - 1, out === '' ? 0 : 1);
  message = text;
  const { status, err } = await exportAt(t, url);
  t.equal(status, 1);
  t.notMatch(err, interpreted);
});

// Regression: one member made 600 requests that were refused, and for a minute no refused attempt of anybody else had
// an event.
t.test('the refused requests of one administrator do not keep those of others out of the trail', async (t) => {
  const { app, call, createMerchant, time } = await registryFixture(t, 'sqlite::memory:');
  const { id: merchantId } = await createMerchant();
  const createAdministrator = async (body: object): Promise<string> =>
    (await call<{ id: string }>('POST', '/administrators', { body })).body.data.id;
  const bearerOf = async (administratorId: string, more: object = {}) => {
    const body = { name: 'x', administratorId, ...more };
    const { token: issued } = (await call<{ token: string }>('POST', '/tokens', { body })).body.data;
    return { authorization: `Bearer ${issued}` };
  };
  const eventsOf = async (action: string): Promise<RegistryEvent[]> =>
    (await call<RegistryEvent[]>('GET', `/events?action=${action}&per_page=100`)).body.data.toReversed();
  const mo = await createAdministrator({ name: 'mo', roles: ['merchant-viewer'], merchantId });
  const sam = await bearerOf(await createAdministrator({ name: 'sam', roles: ['support'] }));
  // The member uses two tokens. In each request for a new token it chooses another address, which the event then names.
  const [one, other] = [await bearerOf(mo), await bearerOf(mo, { sources: ['127.0.0.1'] })];
  for (let index = 0; index < 350; index += 1) {
    t.equal((await call('GET', '/gateways', { headers: one })).status, 404);
    const body = { name: 'x', sources: [`10.0.${index >> 8}.${index & 255}`] };
    t.equal((await call('POST', '/tokens', { headers: other, body })).status, 422);
  }
  t.equal((await call('GET', '/administrators', { headers: sam })).status, 403);
  const headers = { authorization: `Bearer ${newToken(randomBytes)}` };
  t.equal((await app.inject({ url: '/me', headers, remoteAddress: '198.51.100.7' })).statusCode, 401);
  t.match(await eventsOf('sign-in.failed'), [{ source: '198.51.100.7', after: { cause: 'unknown' } }]);
  const refused = await eventsOf('attempt.refused');
  t.same(
    refused.map(({ actor }) => actor),
    [...Array.from({ length: 20 }, () => 'mo'), 'sam'],
  );
  time.advance(60_000);
  await until(async () => (await eventsOf('attempt.refused')).length >= refused.length + 2);
  const counted = { refusals: 340, since: '2026-01-15T12:00:00.000Z' };
  const all = await eventsOf('attempt.refused');
  t.match(all.slice(refused.length), [
    {
      ...{ actor: 'mo', administratorId: mo, proof: /^token:tok_/, requestId: /^[0-9a-f-]{36}$/, source: '127.0.0.1' },
      after: {
        ...counted,
        method: 'GET',
        route: '/gateways',
        needs: `merchant ${merchantId}`,
        cause: 'route_not_found',
      },
    },
    {
      actor: 'mo',
      after: {
        ...counted,
        method: 'POST',
        route: '/tokens',
        needs: 'a token that is valid from 10.0.0.10',
        cause: 'validation_failed',
      },
    },
  ]);
  t.notOk(all.some(({ after }) => after !== null && 'omittedBefore' in after));
  t.equal(all.length, refused.length + 2, 'none of the others is lost or stored twice');
});

// Regression: each administrator had a separate limit, but a member of a merchant can create more members. 31 members
// used up the limit that all administrators share.
t.test('the refused requests of many members do not keep those of others out of the trail', async (t) => {
  const { call, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  const { id: merchantId } = await createMerchant();
  const bearerOf = async (name: string, more: object) => {
    const created = await call<{ id: string }>('POST', '/administrators', { body: { name, ...more } });
    const body = { name: 'x', administratorId: created.body.data.id };
    const { token: issued } = (await call<{ token: string }>('POST', '/tokens', { body })).body.data;
    return { authorization: `Bearer ${issued}` };
  };
  const sam = await bearerOf('sam', { roles: ['support'] });
  for (let member = 0; member < 31; member += 1) {
    const headers = await bearerOf(`member-${member}`, { roles: ['merchant-viewer'], merchantId });
    for (let index = 0; index < 21; index += 1) t.equal((await call('GET', '/gateways', { headers })).status, 404);
  }
  t.equal((await call('GET', '/administrators', { headers: sam })).status, 403);
  const refused = (await call<RegistryEvent[]>('GET', '/events?action=attempt.refused&per_page=100')).body.data;
  t.same(
    refused.map(({ actor }) => actor),
    ['sam', ...Array.from({ length: 20 }, () => 'member-0')],
    'the newest first',
  );
  t.notOk(refused.some(({ after }) => after !== null && 'omittedBefore' in after));
});
