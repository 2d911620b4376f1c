import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { findEntry, requestsIn } from '../../src/audit/access-entry.js';
import { readLogLines } from '../../src/audit/log-lines.js';
import { Verifier } from '../../src/audit/verifier.js';
import { generateApiKey } from '../../src/gateway/api-key.js';
import { logSecretOf } from '../../src/telemetry/chain.js';
import { recordsOf } from '../edge/harness.js';
import { killAtEnd, productCommand } from '../product-command.js';
import { startServer } from '../start-server.js';
import { numberIn, optionsOf, say } from './command-line.js';
import { Teardowns } from '../deployment/teardowns.js';
import { round } from './distribution.js';

// Floods a gateway with requests without a key, from one address or many. Measures how large the access log becomes.
// Checks that its request counts add up, and that no valid key from the same address is rejected meanwhile.

const options = optionsOf({ requests: '1000000', addresses: '1', connections: '16', seconds: '900' });
const requests = numberIn('requests', options.requests);
const addresses = numberIn('addresses', options.addresses);
const connections = numberIn('connections', options.connections);
const deadline = performance.now() + numberIn('seconds', options.seconds) * 1000;

const pipelined = 8;
const keyCount = 40;
const secret = 'a secret of this benchmark alone';
const responseMark = '"data":';

const addressOf = (number: number): string =>
  `2001:db8:${(number >> 16).toString(16)}:${(number & 0xffff).toString(16)}::1`;
const headOf = (number: number, more = ''): string =>
  `GET /v1/transactions HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: ${addressOf(number)}\r\n${more}\r\n`;

const progress = { sent: 0, received: 0 };

/** Sends pipelined requests without a key until the number of requests or the deadline is reached. */
async function flood(port: number): Promise<void> {
  const socket = net.connect(port, '127.0.0.1').setEncoding('latin1');
  const send = (): number => {
    const count = performance.now() > deadline ? 0 : Math.min(pipelined, requests - progress.sent);
    let bytes = '';
    for (let index = 0; index < count; index += 1) bytes += headOf((progress.sent + index) % addresses);
    progress.sent += count;
    if (count > 0) socket.write(bytes, 'latin1');
    return count;
  };
  let [owed, rest] = [send(), ''];
  if (owed === 0) return void socket.destroy();
  for await (const chunk of socket as AsyncIterable<string>) {
    const marks = (rest + chunk).split(responseMark);
    rest = (marks.at(-1) ?? '').slice(-responseMark.length + 1);
    owed -= marks.length - 1;
    progress.received += marks.length - 1;
    if (owed === 0 && (owed = send()) === 0) break;
  }
}

/** Sends a request with a key from the first address of the flood. @returns the status code */
function askWith(port: number, key: string): Promise<number> {
  const headers = { 'x-forwarded-proto': 'https', 'x-forwarded-for': addressOf(0), 'x-api-key': key };
  return new Promise((resolve, reject) => {
    const asked = http.get({ port, host: '127.0.0.1', path: '/v1/transactions', headers, agent: false }, (response) => {
      response.resume().once('end', () => {
        resolve(response.statusCode ?? 0);
      });
    });
    asked.once('error', reject);
  });
}

const t = new Teardowns();
try {
  const folder = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-flood-'));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const file = (name: string): string => path.join(folder, name);
  const url = await startServer(t, (_request, response) => response.end('{}'));
  const keys = Array.from({ length: keyCount }, () => generateApiKey('live'));
  const records = keys.map((key, number) => recordsOf(key, { key: { keyId: `key_${number}` } }));
  await writeFile(file('records.json'), JSON.stringify(Object.assign({}, ...records)));
  await writeFile(file('secret'), secret, { mode: 0o600 });
  const anyPort = { host: '127.0.0.1', port: 0 };
  const config = {
    listen: { https: null, http: anyPort, management: null },
    trustedProxies: ['127.0.0.1'],
    keyStore: { kind: 'memory', memory: { recordsFile: file('records.json') } },
    torExits: { enabled: false },
    accessLog: { destination: file('access.log'), secretFile: file('secret') },
    upstreams: { transactions: { url } },
    routes: [{ path: '/transactions', upstream: 'transactions', resource: 'transactions' }],
  };
  await writeFile(file('gateway.yaml'), JSON.stringify(config));
  const gateway = spawn(...productCommand(['gateway', '--config', file('gateway.yaml')]), {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  killAtEnd(t, gateway);
  let log = '';
  gateway.stderr.on('data', (chunk: Buffer) => (log += chunk.toString()));
  const portIn = (): number => Number(/"http":\{[^}]*"port":(\d+)/.exec(log)?.[1] ?? 0);
  while (portIn() === 0) {
    if (gateway.exitCode !== null) throw new Error(`the gateway ended: ${log}`);
    await wait(20);
  }
  const port = portIn();

  const begun = performance.now();
  const run = { isOver: false };
  const flooding = Promise.all(Array.from({ length: connections }, () => flood(port))).finally(() => {
    run.isOver = true;
  });
  const statuses: number[] = [];
  let reported = 0;
  while (!run.isOver) {
    statuses.push(await askWith(port, keys[statuses.length % keyCount] ?? ''));
    await wait(100);
    if (progress.received - reported < 100_000) continue;
    reported = progress.received;
    say(`${reported} of ${requests} requests answered`);
  }
  await flooding;
  const seconds = (performance.now() - begun) / 1000;
  gateway.kill('SIGTERM');
  await once(gateway, 'exit');

  const verifier = new Verifier({ secrets: [logSecretOf(Buffer.from(secret))], running: false, partial: false });
  const lines = { own: 0, ownBytes: 0, shared: 0 };
  for await (const some of readLogLines([file('access.log')])) {
    for (const line of some) {
      verifier.take(line);
      const entry = findEntry(line.bytes)?.entry;
      if (entry?.gateway.aggregate !== undefined) lines.shared += 1;
      else if (entry !== undefined && requestsIn(entry, 'key_required').length > 0) {
        lines.own += 1;
        lines.ownBytes += (line.bytes?.length ?? 0) + 1;
      }
    }
  }
  const verdict = verifier.end();
  const { size } = await stat(file('access.log'));
  const refused = statuses.filter((status) => status !== 200).length;
  const wholeBytes = progress.received * (lines.ownBytes / lines.own);
  const result = {
    ...{ requests: progress.received, addresses, seconds: round(seconds), withKeys: statuses.length, refused },
    ...{ stated: verdict.requests, intact: verdict.intact, logBytes: size, ...lines },
    percentOfOneLineEach: Math.round((1e6 * size) / wholeBytes) / 1e4,
  };
  if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
  else
    process.stdout.write(
      Object.entries(result)
        .map(([name, value]) => `${name.padEnd(22)} ${value}\n`)
        .join(''),
    );
  const isExact = verdict.requests === progress.received + statuses.length && progress.sent === progress.received;
  if (!isExact || !verdict.intact || refused > 0) {
    say('The numbers do not add up, or a valid key was refused.');
    process.exitCode = 1;
  }
} finally {
  await t.close();
}
