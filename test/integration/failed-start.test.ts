import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import t from 'tap';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { liveKey, recordsOf, startUpstream } from '../edge/harness.js';
import { killAtEnd, productCommand } from '../product-command.js';
import { writeGatewayConfig } from './gateway-config.js';

t.test(
  'a failed start ends the process despite open resources, and the process is not counted as a gateway',
  { skip: withoutRedis },
  async (t) => {
    const redis = await startRedis(t);
    const upstream = await startUpstream(t);
    const { configFile } = await writeGatewayConfig(t, {
      ...{ redisUrl: redis.url, upstreamUrl: upstream.url, maxStaleSeconds: 3, management: 'null' },
    });
    const config = await readFile(configFile, 'utf8');
    const missing = path.join(path.dirname(configFile), 'missing');
    const cases: readonly (readonly [string, RegExp])[] = [
      [`${config}keys: { pepperFile: ${missing} }`, /^The pepper .* cannot be read/],
      [`${config}identity: { signingKeyFile: ${missing} }`, /^The signing key .* cannot be read/],
      [`${config}geoip: { countryFile: ${missing} }`, /missing/],
      [
        `${config}traces: { endpoint: "http://127.0.0.1:1/v1/traces", tokenFile: ${missing} }`,
        /^The token for traces .* cannot be read/,
      ],
      [config.replace(/destination: \S+/, 'destination: /tmp'), /^The access log \/tmp cannot be opened/],
      [
        config.replace(/url: "http:[^}]*/, `url: "https://127.0.0.1:1", caFile: ${missing}`),
        /^The CA certificate .* cannot be read/,
      ],
    ];
    for (const [text, said] of cases) {
      await writeFile(configFile, text);
      const child = spawn(...productCommand(['gateway', '--config', configFile]), { stdio: 'pipe' });
      killAtEnd(t, child);
      let told = '';
      child.stderr.on('data', (chunk: Buffer) => (told += chunk.toString()));
      const giveUp = setTimeout(() => child.kill('SIGKILL'), 20_000);
      t.same(await once(child, 'close'), [1, null], told);
      clearTimeout(giveUp);
      t.match(
        told.split('\n').find((line) => !line.startsWith('{')),
        said,
      );
      t.same(await redis.client.keys('mg:gateway:*'), []);
    }
  },
);

t.test('a reload signal during the start does not end the process', async (t) => {
  const upstream = await startUpstream(t);
  const { configFile } = await writeGatewayConfig(t, {
    ...{ redisUrl: 'redis://127.0.0.1:1', upstreamUrl: upstream.url, maxStaleSeconds: 3, management: 'null' },
  });
  const file = (name: string): string => path.join(path.dirname(configFile), name);
  await writeFile(file('records.json'), JSON.stringify(recordsOf(liveKey)));
  const inMemory = `kind: memory, memory: { recordsFile: ${file('records.json')} }, redis`;
  const config = (await readFile(configFile, 'utf8')).replace('kind: redis, redis', inMemory);
  execFileSync('mkfifo', [file('pipe')]);
  const child = spawn(...productCommand(['gateway', '--config', file('pipe')]), { stdio: 'pipe' });
  killAtEnd(t, child);
  const ended = once(child, 'close');
  const giveUp = setTimeout(() => child.kill('SIGKILL'), 20_000);
  let told = '';
  const started = new Promise<string>((resolve) => {
    child.stderr.on('data', (chunk: Buffer) => {
      told += chunk.toString();
      if (told.includes('the gateway takes requests')) resolve('started');
    });
  });
  const writing = await open(file('pipe'), 'w'); // completes once the gateway reads the pipe: it is starting, and waits
  child.kill('SIGHUP');
  child.kill('SIGUSR2');
  await writing.writeFile(config);
  await writing.close();
  t.equal(await Promise.race([started, ended]), 'started', told);
  child.kill('SIGTERM');
  t.same(await ended, [0, null]);
  clearTimeout(giveUp);
});
