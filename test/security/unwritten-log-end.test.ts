import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import t from 'tap';
import type { Test } from 'tap';
import { recordsOf, liveKey } from '../edge/harness.js';
import { limitedCommand } from '../product-command.js';
import { until } from '../telemetry/open-log.js';

// Lines that nobody could take were lost with the process, which said that it had drained and ended with status 0.
const mostKibibytes = 64;

/** Starts a gateway that may not make its log larger than it is, and ends it. */
async function runAndEnd(t: Test, log: string, args: readonly string[]): Promise<{ end: unknown; told: string }> {
  const directory = t.testdir({ 'records.json': JSON.stringify(recordsOf(liveKey)) });
  writeFileSync(`${directory}/${log}`, 'x'.repeat(mostKibibytes * 1024));
  const config = {
    listen: { https: null, http: { host: '127.0.0.1', port: 0 }, management: null },
    torExits: { enabled: false },
    keyStore: { kind: 'memory', memory: { recordsFile: `${directory}/records.json` } },
    upstreams: { all: { url: 'http://127.0.0.1:9' } },
    routes: [{ path: '/transactions', upstream: 'all', resource: 'transactions' }],
    accessLog: { destination: `${directory}/access.log`, onFailure: 'continue' },
    limits: { drainDelaySeconds: 0 },
    trustedProxies: ['127.0.0.1'],
  };
  writeFileSync(`${directory}/config.yaml`, JSON.stringify(config));
  const command = limitedCommand(mostKibibytes, ['gateway', '--config', `${directory}/config.yaml`, ...args]);
  const child = spawn(...command, { stdio: ['ignore', 'ignore', 'pipe'] });
  t.teardown(() => child.kill('SIGKILL'));
  const ended = once(child, 'exit');
  let told = '';
  child.stderr.on('data', (chunk: Buffer) => (told += chunk.toString()));
  await until(() => told.includes('takes requests') || child.exitCode !== null);
  child.kill('SIGTERM');
  return { end: await ended, told };
}

t.test('a gateway that cannot write the end of its access log ends with a failure', async (t) => {
  const { end, told } = await runAndEnd(t, 'access.log', []);
  t.same(end, [1, null], told);
  t.match(told, /ends with a failure/);
  t.match(told, /the end of the access log could not be written: \d+ bytes are lost/);
  t.notMatch(told, 'drained');
});

t.test('and so does one of several processes', async (t) => {
  const { end, told } = await runAndEnd(t, 'access.2.log', ['--workers', '2']);
  t.same(end, [1, null], told);
  t.match(told, /the end of the access log could not be written: \d+ bytes are lost/);
  t.match(told, /a worker process ended with a failure: 2/);
});
