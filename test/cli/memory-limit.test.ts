import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { loadConfig } from '../../src/config/load.js';
import { mebibyte, planMemory } from '../../src/config/memory-plan.js';
import { liveKey, recordsOf } from '../edge/harness.js';
import { killAtEnd, productCommand } from '../product-command.js';
import { until } from '../telemetry/open-log.js';

t.test('a gateway accepts as many connections as its memory allows, divided among its workers', async (t) => {
  const { cert, key } = await createSelfSigned(new Date());
  const directory = t.testdir({
    ...{ 'cert.txt': cert, 'key.txt': key, 'records.json': JSON.stringify(recordsOf(liveKey)) },
  });
  const file = (name: string): string => path.join(directory, name);
  const address = { host: '127.0.0.1', port: 0 };
  const text = JSON.stringify({
    listen: {
      https: { ...address, certFile: file('cert.txt'), keyFile: file('key.txt') },
      ...{ http: null, management: address },
    },
    torExits: { enabled: false },
    keyStore: { kind: 'memory', memory: { recordsFile: file('records.json') } },
    accessLog: { destination: file('access.log') },
    limits: { memory: 512 * mebibyte },
  });
  writeFileSync(file('config.yaml'), text);
  for (const workers of [1, 2]) {
    const { connections } = planMemory(loadConfig({ text }), workers).allows;
    t.ok(connections < 10_000);
    const args = ['gateway', '--config', file('config.yaml'), '--workers', String(workers)];
    const child = spawn(...productCommand(args), { stdio: ['ignore', 'ignore', 'pipe'] });
    const ended = new Promise((resolve) => child.once('exit', resolve));
    killAtEnd(t, child);
    let log = '';
    child.stderr.on('data', (chunk: Buffer) => (log += chunk.toString()));
    await until(() => log.includes('accepts requests') || child.exitCode !== null);
    t.match(log, `"allows":{"connections":${connections},`);
    t.match(log, /limits\.connections is 10000, but only \d+ fit into the \d+ MiB of memory/);
    const port = /"management":\{[^}]*"port":(\d+)/.exec(log)?.[1] ?? '';
    const metrics = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    t.match(metrics, `gateway_connections_limit{listener="https"} ${connections * workers}\n`, `${workers}`);
    child.kill('SIGTERM');
    await ended;
  }
});
