import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile, writeFile } from 'node:fs/promises';
import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { openSite } from '../deployment/deployment.js';
import { liveKey, recordsOf } from '../edge/harness.js';
import { killAtEnd, productCommand } from '../product-command.js';

t.test(
  'a failed start ends the process despite open resources, and the process is not counted as a gateway',
  { skip: withoutRedis },
  async (t) => {
    const { redis, file, configure } = await openSite(t);
    const missing = file('missing');
    const cases: readonly (readonly [object, RegExp])[] = [
      [{ keys: { pepperFile: missing } }, /^The pepper .* cannot be read/],
      [{ identity: { signingKeyFile: missing } }, /^The signing key .* cannot be read/],
      [{ geoip: { countryFile: missing } }, /missing/],
      [
        { traces: { endpoint: 'http://127.0.0.1:1/v1/traces', tokenFile: missing } },
        /^The token for traces .* cannot be read/,
      ],
      [{ accessLog: { destination: '/tmp' } }, /^The access log \/tmp cannot be opened/],
      [
        { upstreams: { transactions: { url: 'https://127.0.0.1:1', caFile: missing } } },
        /^The CA certificate .* cannot be read/,
      ],
    ];
    for (const [settings, reported] of cases) {
      const configFile = await configure('gateway', settings);
      const child = spawn(...productCommand(['gateway', '--config', configFile]), { stdio: 'pipe' });
      killAtEnd(t, child);
      let output = '';
      child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
      const giveUp = setTimeout(() => child.kill('SIGKILL'), 120_000);
      t.same(await once(child, 'close'), [1, null], output);
      clearTimeout(giveUp);
      t.match(
        output.split('\n').find((line) => !line.startsWith('{')),
        reported,
      );
      t.same(await redis.client.keys('mg:gateway:*'), []);
    }
  },
);

t.test('a reload signal during the start does not end the process', async (t) => {
  const { file, configure } = await openSite(t);
  await writeFile(file('records.json'), JSON.stringify(recordsOf(liveKey)));
  const memory = { kind: 'memory', memory: { recordsFile: file('records.json') } };
  const config = await readFile(await configure('gateway', { keyStore: memory }), 'utf8');
  execFileSync('mkfifo', [file('pipe')]);
  const child = spawn(...productCommand(['gateway', '--config', file('pipe')]), { stdio: 'pipe' });
  killAtEnd(t, child);
  const ended = once(child, 'close');
  const giveUp = setTimeout(() => child.kill('SIGKILL'), 120_000);
  let output = '';
  const started = new Promise<string>((resolve) => {
    child.stderr.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      if (output.includes('the gateway accepts requests')) resolve('started');
    });
  });
  const writing = await open(file('pipe'), 'w'); // resolves once the starting gateway waits for data in the pipe
  child.kill('SIGHUP');
  child.kill('SIGUSR2');
  await writing.writeFile(config);
  await writing.close();
  t.equal(await Promise.race([started, ended]), 'started', output);
  child.kill('SIGTERM');
  t.same(await ended, [0, null]);
  clearTimeout(giveUp);
});
