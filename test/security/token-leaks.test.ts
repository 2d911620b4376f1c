import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { createLogger } from '../../src/telemetry/logger.js';
import { freePort } from '../adapters/redis-server.js';
import { killAtEnd, productCommand } from '../product-command.js';

// Attacks of somebody who reads the process list, a shell's history or the registry's log.

const shared = 'a-shared-token-of-the-tests-0123456789';
const directory = t.testdir({ token: shared });
const port = await freePort();
const url = `http://127.0.0.1:${port}`;
writeFileSync(
  `${directory}/gateway.yaml`,
  `registry:\n  listen: { host: 127.0.0.1, port: ${port} }\n  database: { url: 'sqlite:${directory}/registry.db' }\n` +
    `  tokenFile: ${directory}/token\nkeyStore: { redis: { url: 'redis://127.0.0.1:1' } }\n`,
  { mode: 0o600 },
);
/** All that the registry has written to its standard streams. */
let log = '';
const registry = spawn(...productCommand(['registry', '--create', '--config', `${directory}/gateway.yaml`]));
killAtEnd(t, registry);
const ready = new Promise<void>((resolve, reject) => {
  const read = (chunk: Buffer): void => {
    log += chunk.toString();
    if (log.includes('the registry accepts requests')) resolve();
  };
  registry.stdout.on('data', read);
  registry.stderr.on('data', read);
  registry.once('exit', () => {
    reject(new Error(log));
  });
});

/** Runs a command, and returns its output, its exit status and what the process list showed of it. */
async function run(...args: string[]) {
  const child = spawn(...productCommand(args), { env: { ...process.env, MERCHANT_GATEWAY_REGISTRY: url } });
  const seen: string[] = [];
  const polling = setInterval(() => {
    try {
      seen.push(readFileSync(`/proc/${child.pid}/cmdline`, 'utf8'));
    } catch {
      // The process has ended.
    }
  }, 5);
  let output = '';
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const [status] = (await once(child, 'close')) as [number | null];
  clearInterval(polling);
  return { output, status, processList: seen.join('\n') };
}

t.test('the process log has no token, neither in a value nor in the name of a member', (t) => {
  const lines: string[] = [];
  const token = `mga_${'a'.repeat(51)}`;
  createLogger('info', { write: (line) => lines.push(line) }).info({ [token]: 1, list: [{ [token]: token }] }, token);
  t.equal(lines.length, 1);
  t.notOk(lines[0]?.includes('aaaa'));
  t.equal(lines[0]?.match(/mga_…/g)?.length, 4);
  t.end();
});

t.test('neither the process list, nor the output, nor the log of the registry has a token', async (t) => {
  await ready;
  const own = ['--token-file', `${directory}/token`];
  const created = await run('administrators', 'create', '--name', 'ada', '--role', 'owner', '--json', ...own);
  const { id } = JSON.parse(created.output) as { id: string };
  const file = `${directory}/ada`;
  const made = await run('tokens', 'create', '--administrator', id, '--name', 'laptop', '--output', file, ...own);
  t.equal(made.status, 0, made.output);
  const token = readFileSync(file, 'utf8').trim();
  t.match(token, /^mga_/);
  const used = await run('whoami', '--token-file', file);
  t.match(used.output, /^name: ada$/m);
  // The ways in which a token is given by mistake, or guessed: arguments, URL, headers, body.
  const argued = await run('whoami', '--token-file', token);
  t.not(argued.status, 0);
  const wrong = token.replace(/.$/, (last) => (last === '0' ? '1' : '0'));
  const bearer = { authorization: `Bearer ${token}` };
  const json = { 'content-type': 'application/json' };
  for (const [path, init] of [
    [`/me?token=${token}`, {}],
    [`/me?token=${token}`, { headers: bearer }],
    [`/${token}`, { headers: bearer }],
    [`/administrators/${token}`, { headers: bearer }],
    ['/me', { headers: { authorization: `Bearer ${wrong}` } }],
    ['/me', { headers: { cookie: `token=${token}` } }],
    ['/me', { headers: { ...bearer, 'x-reason': token, 'x-actor': token, 'x-request-id': token } }],
    ['/merchants', { method: 'POST', headers: { ...bearer, ...json }, body: JSON.stringify({ [token]: token }) }],
    ['/sign-in/refresh', { method: 'POST', headers: json, body: JSON.stringify({ handle: token }) }],
    ['/merchants', { method: 'POST', headers: { ...bearer, ...json }, body: `{ "name": "${token}` }],
  ] as const) {
    const response = await fetch(`${url}${path}`, init);
    const text = await response.text();
    t.notOk(text.includes(token) || text.includes(wrong), `${path.replace(token, '…')}: the response`);
  }
  const events = await run('events', 'list', '--json', '--token-file', file);
  t.match(events.output, /"action": ?"token\.created"/);
  const metrics = await (await fetch(`${url}/metrics`)).text();

  const ended = once(registry, 'close');
  registry.removeAllListeners('exit');
  registry.kill('SIGTERM');
  await ended;
  t.match(log, /the shared token of registry\.tokenFile is still accepted although an owner exists/);
  const places = {
    ...{ log, events: events.output, metrics, created: created.output, made: made.output, used: used.output },
    processes: [created, made, used, events].map(({ processList }) => processList).join('\n'),
  };
  t.match(places.processes, /tokens\0create/, 'the process list was read');
  for (const [place, text] of Object.entries(places))
    for (const secret of [token, wrong, shared]) t.notOk(text.includes(secret), `${place} has no token`);
  t.notOk(argued.output.includes(token), 'the error about a token in the arguments does not repeat it');
});
