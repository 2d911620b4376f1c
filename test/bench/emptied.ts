import { setTimeout as wait } from 'node:timers/promises';
import { numberIn, optionsOf, say } from './command-line.js';
import { Teardowns } from '../deployment/teardowns.js';
import { startBenchDeployment } from './deployment.js';
import { round } from './distribution.js';
import { benchKey } from './key-file.js';
import { isFilled, seedKeys } from './seed.js';

// Empties Redis and at once sends requests with keys that no gateway has cached. Measures the time until all of these
// keys have been accepted, and the time until Redis has all records again.

const options = optionsOf({ keys: '10000', asked: '1000', connections: '100' });
const keys = numberIn('keys', options.keys);
const asked = Math.min(keys, numberIn('asked', options.asked));
const connections = numberIn('connections', options.connections);
const [pauseMilliseconds, warmUpRounds] = [20, 20];

const t = new Teardowns();
try {
  const deployment = await startBenchDeployment(t);
  say(`seeding ${keys} keys`);
  await seedKeys(deployment, keys);
  const gateway = await deployment.startGateway({ keyStore: { cache: { preload: false } } });
  await wait(3_000); // until the registry knows the gateway
  // Warms up: opens every connection and runs the code before the measurement.
  for (let round = 0; round < warmUpRounds; round += 1)
    await Promise.all(Array.from({ length: connections }, () => gateway.ask(benchKey(keys - 1))));

  const statuses: Record<number, number> = {};
  let next = 0;
  const loop = async (): Promise<void> => {
    while (next < asked) {
      const key = benchKey(Math.floor((next++ * keys) / asked));
      for (;;) {
        const status = await gateway.ask(key);
        statuses[status] = (statuses[status] ?? 0) + 1;
        if (status === 200) break;
        await wait(pauseMilliseconds);
      }
    }
  };
  await deployment.redis.client.flushall();
  const began = performance.now();
  const since = (): number => round((performance.now() - began) / 1000);
  await Promise.all(Array.from({ length: connections }, loop));
  const acceptedSeconds = since();
  while (!(await isFilled(deployment))) await wait(pauseMilliseconds);
  const result = { keys, asked, acceptedSeconds, filledSeconds: since(), statuses };
  if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
  else
    process.stdout.write(
      `${keys} keys; ${asked} of them were accepted ${acceptedSeconds} s after FLUSHALL, and all were written after ${result.filledSeconds} s; ` +
        `responses: ${JSON.stringify(statuses)}\n`,
    );
  if (statuses[401] !== undefined) process.exitCode = 1;
} finally {
  await t.close();
}
