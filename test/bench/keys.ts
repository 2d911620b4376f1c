import { setTimeout as wait } from 'node:timers/promises';
import { numberIn, optionsOf, say } from './command-line.js';
import type { Deployment } from '../deployment/deployment.js';
import { Teardowns } from '../deployment/teardowns.js';
import { startBenchDeployment } from './deployment.js';
import { residentMebibytes } from './resident-memory.js';
import { distributionText, round } from './distribution.js';
import { writeKeyFile } from './key-file.js';
import { compareLookUps } from './look-ups.js';
import { isFilled } from './seed.js';
import { besideChanges, floodWithUnknown } from './requests.js';

// Measures the time and memory that many keys need for their import and for a rebuild of Redis. Then measures how the
// number of keys, changes, and a flood of unknown keys affect the gateway.

const options = optionsOf({ keys: '1000000', database: '', seconds: '20', changes: '50', unknown: '100000' });
const keys = numberIn('keys', options.keys);
const seconds = numberIn('seconds', options.seconds);
const perSecond = numberIn('changes', options.changes);
const unknown = numberIn('unknown', options.unknown);
const fewKeys = Math.min(1000, keys);
const rebuildMinutes = 60;

const t = new Teardowns();
try {
  // For PostgreSQL, `--database` must name an empty database; the SQLite file is temporary.
  const many = await startBenchDeployment(t, { databaseUrl: options.database || undefined });
  const few = await startBenchDeployment(t);
  say(`importing ${keys} keys`);
  const imported = await timedImport(many, keys);
  say(`imported: ${JSON.stringify(imported)}; emptying Redis, so that everything is projected anew`);
  const rebuilt = await timedRebuild(many);
  say(`projected anew: ${JSON.stringify(rebuilt)}; looking up`);
  await timedImport(few, fewKeys);
  const urls = [few.redis.url, many.redis.url] as const;
  const asking = await compareLookUps(urls, [fewKeys, keys], 1);
  const holding = await compareLookUps(urls, [fewKeys, keys], 200_000);
  say(`look-ups: ${JSON.stringify({ asking, holding })}`);
  say(`${perSecond} changes a second beside accepted requests, for ${seconds} s`);
  const gateway = await many.startGateway();
  const beside = await besideChanges(many, gateway, { seconds, perSecond, keys: fewKeys });
  say(JSON.stringify(beside));
  say(`${unknown} unknown keys`);
  const flooded = await floodWithUnknown(gateway, { unknown, known: fewKeys });

  const result = { keys, database: options.database === '' ? 'SQLite' : 'PostgreSQL', imported, rebuilt };
  const all = { ...result, lookUps: { few: fewKeys, asking, holding }, beside, flooded };
  if (options.json) process.stdout.write(`${JSON.stringify(all)}\n`);
  else {
    const lookUps = ({ microseconds: [one, other], ratio }: typeof asking): string =>
      `${one} µs with ${fewKeys} keys, ${other} µs with ${keys}, ratio ${ratio}`;
    process.stdout.write(
      [
        `${keys} keys, ${all.database}`,
        `import: ${imported.seconds} s; registry at most ${imported.registryMebibytes} MiB; Redis ${imported.redisMebibytes} MiB`,
        `projection of everything anew: ${rebuilt.seconds} s; registry at most ${rebuilt.registryMebibytes} MiB`,
        `a look-up that asks Redis (100 at once): ${lookUps(asking)}`,
        `a look-up that is held: ${lookUps(holding)}`,
        `milliseconds of accepted requests without changes: ${distributionText(beside.without)}`,
        `                      beside ${perSecond} changes a second: ${distributionText(beside.with)}`,
        `known keys answered otherwise than with 200: ${beside.refused}`,
        `${flooded.unknown} unknown keys, ${flooded.refused} refused with 401: gateway ${flooded.mebibytes.join(' -> ')} MiB; known keys still held: ${flooded.hits}`,
        '',
      ].join('\n'),
    );
  }
} finally {
  await t.close();
}

async function timedImport(deployment: Deployment, count: number) {
  const file = deployment.file('keys.ndjson');
  await writeKeyFile(file, count);
  const begun = performance.now();
  const summary = JSON.parse(await deployment.run('keys', 'import', file, '--json')) as { projected: boolean };
  if (!summary.projected) throw new Error('the import is not projected');
  const memory = await deployment.redis.client.info('memory');
  return {
    seconds: secondsSince(begun),
    registryMebibytes: await residentMebibytes(deployment.registry.pid, 'VmHWM'),
    redisMebibytes: Math.round(Number(/^used_memory:(\d+)/m.exec(memory)?.[1]) / 1024 ** 2),
  };
}

async function timedRebuild(deployment: Deployment) {
  const { redis, registry } = deployment;
  const begun = performance.now();
  await redis.client.flushall();
  while (!(await isFilled(deployment))) {
    if (performance.now() - begun > rebuildMinutes * 60_000) throw new Error('it was not projected anew');
    await wait(50);
  }
  return { seconds: secondsSince(begun), registryMebibytes: await residentMebibytes(registry.pid, 'VmHWM') };
}

function secondsSince(begun: number): number {
  return round((performance.now() - begun) / 1000);
}
