import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import type { Verdict } from '../../src/audit/chain-check.js';
import { readLogLines } from '../../src/audit/log-lines.js';
import { Verifier } from '../../src/audit/verifier.js';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { ask, connect, liveKey, recordsOf, requestBytes, startUpstream } from '../edge/harness.js';
import { killAtEnd, productCommand } from '../product-command.js';
import { testSecret, until } from '../telemetry/open-log.js';

/** URL of a module that makes the process throw an uncaught error on each SIGWINCH. */
const failing = 'data:text/javascript,process.on("SIGWINCH",()=>{throw new Error("unforeseen")})';

const pair = await createSelfSigned(new Date());
const directory = t.testdir({
  'cert.txt': pair.cert,
  'key.txt': pair.key,
  secret: 'a secret of the tests alone\n',
  'records.json': JSON.stringify(recordsOf(liveKey)),
});
const file = (name: string): string => path.join(directory, name);
const log = file('access.log');

const upstream = await startUpstream(t);
const respond = upstream.respond;
/** Functions that each send the response to one request for `/held`. */
const held: (() => void)[] = [];
upstream.respond = (request, response, body) => {
  if (request.url?.endsWith('/held') === true)
    held.push(() => {
      respond(request, response, body);
    });
  else if (request.url?.endsWith('/silent') !== true) respond(request, response, body);
};
writeFileSync(
  file('config.yaml'),
  JSON.stringify({
    listen: {
      https: { host: '127.0.0.1', port: 0, certFile: file('cert.txt'), keyFile: file('key.txt') },
      http: null,
      management: null,
    },
    torExits: { enabled: false },
    keyStore: { kind: 'memory', memory: { recordsFile: file('records.json') } },
    upstreams: { all: { url: upstream.url } },
    routes: [{ path: '/transactions', upstream: 'all', resource: 'transactions' }],
    accessLog: { destination: log, secretFile: file('secret') },
    limits: { drainTimeoutSeconds: 600 },
  }),
);

/** A gateway in a separate process. */
async function startGatewayProcess() {
  const child = spawn(...productCommand(['gateway', '--config', file('config.yaml')], ['--import', failing]), {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  killAtEnd(t, child);
  // Unlike `exit`, `close` comes after the last output.
  const exited = once(child, 'close') as Promise<[number | null, string | null]>;
  let output = '';
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  await until(() => output.includes('accepts requests') || child.exitCode !== null);
  const port = Number(/"https":\{[^}]*"port":(\d+)/.exec(output)?.[1]);
  const gateway = { https: port, ca: pair.cert };
  return { child, exited, gateway, output: () => output };
}

const askAll = async (gateway: { https: number; ca: string }, names: readonly string[]): Promise<void> => {
  for (const name of names) {
    await ask(gateway, { path: `/v1/transactions/${name}`, headers: [['x-api-key', liveKey]] });
  }
};

async function verify(files: readonly string[]): Promise<Verdict> {
  const verifier = new Verifier({ secrets: [testSecret], running: false, partial: false });
  for await (const lines of readLogLines(files)) for (const line of lines) verifier.take(line);
  return verifier.end();
}

const goesOnIn = async (renamed: string, signal: () => void): Promise<void> => {
  renameSync(log, renamed);
  signal();
  await until(() => existsSync(log) && readFileSync(log, 'utf8').includes('"file-start"'));
};

t.test(
  'the access log loses no line through rotation, a crash, a forced end and a kill, and its chain verifies',
  async (t) => {
    const first = await startGatewayProcess();
    await askAll(first.gateway, ['a', 'b']);
    await goesOnIn(`${log}.1`, () => first.child.kill('SIGUSR2'));
    await askAll(first.gateway, ['c']);
    await goesOnIn(`${log}.2`, () => undefined);
    await askAll(first.gateway, ['d', 'e']);
    first.child.kill('SIGWINCH');
    t.same(await first.exited, [1, null], 'an uncaught error ends the process');
    t.match(first.output(), /unforeseen[^]*fatal error; the process exits/);

    const second = await startGatewayProcess();
    await askAll(second.gateway, ['f']);
    const waiting = connect(second.gateway.https, pair.cert).on('error', () => undefined);
    waiting.write(requestBytes({ path: '/v1/transactions/silent', headers: [['x-api-key', liveKey]] }));
    await until(() => upstream.seen.some(({ url }) => url.endsWith('/silent')));
    await askAll(second.gateway, ['g']);
    const again = setInterval(() => second.child.kill('SIGTERM'), 100);
    t.same(await second.exited, [1, null], 'a second signal during the drain forces the end');
    clearInterval(again);
    t.match(second.output(), 'forced exit: a second stop signal arrived');

    const third = await startGatewayProcess();
    await askAll(third.gateway, ['h']);
    await until(() => readFileSync(log, 'utf8').includes('/transactions/h'));
    third.child.kill('SIGKILL');
    await third.exited;
    const fourth = await startGatewayProcess();
    await askAll(fourth.gateway, ['i']);
    fourth.child.kill('SIGTERM');
    t.same(await fourth.exited, [0, null]);

    const files = [`${log}.1`, `${log}.2`, log];
    const { intact, findings, chains } = await verify(files);
    t.same([intact, findings, chains.length], [true, [], 4]);
    t.same(
      chains.map(({ closed }) => closed),
      [true, true, true, true],
      'each chain is closed by its own process or by its successor',
    );
    const lines = files.map((one) => readFileSync(one, 'utf8').trimEnd().split('\n'));
    const ends = lines.flat().filter((line) => line.includes('"reason":"end"'));
    t.equal(ends.length, 3, 'every process except the killed one wrote its buffered lines and an end line');
    const asked = lines.map((some) =>
      some.flatMap((line) => /"path":"\/v1\/transactions\/(\w+)"/.exec(line)?.[1] ?? []),
    );
    t.same(asked, [['a', 'b'], ['c'], ['d', 'e', 'f', 'g', 'h', 'i']], 'each request with a response has a line');
    renameSync(`${log}.2`, `${log}.gone`);
    t.notOk((await verify([files[0] ?? '', log])).intact, 'a removed file is detected');
  },
);

/** Starts a gateway with a request in flight. */
async function startWithRequest() {
  held.length = 0;
  const process = await startGatewayProcess();
  const response = ask(process.gateway, { path: '/v1/transactions/held', headers: [['x-api-key', liveKey]] });
  await until(() => held.length === 1);
  return { ...process, response };
}

t.test('an uncaught error during the drain fails the exit code, but no request', async (t) => {
  const { child, exited, response, output } = await startWithRequest();
  child.kill('SIGTERM');
  await until(() => output().includes('draining'));
  child.kill('SIGWINCH');
  await until(() => output().includes('unforeseen'));
  // A second stop signal that comes more than one second after the first forces the exit. A second uncaught error must
  // not force it.
  await wait(1_100);
  child.kill('SIGWINCH');
  await until(() => output().split('unforeseen').length > 4);
  held[0]?.();
  t.equal((await response).status, 200);
  t.same(await exited, [1, null]);
  t.notMatch(output(), /forced exit/);
});

t.test('a first signal during the drain after an uncaught error cuts off no request', async (t) => {
  const { child, exited, response, output } = await startWithRequest();
  child.kill('SIGWINCH');
  await until(() => output().includes('draining'));
  await wait(1_100);
  child.kill('SIGTERM');
  await wait(200);
  held[0]?.();
  t.equal((await response).status, 200);
  t.same(await exited, [1, null]);
  t.notMatch(output(), /forced exit/);
});
