import { setTimeout as wait } from 'node:timers/promises';
import { numberIn, optionsOf, say } from './command-line.js';
import type { Deployment, GatewayProcess } from '../deployment/deployment.js';
import { Teardowns } from '../deployment/teardowns.js';
import { startBenchDeployment } from './deployment.js';
import { residentMebibytes } from './resident-memory.js';
import { distributionOf, distributionText, round } from './figures.js';
import { openFixedRate } from './load/fixed-rate.js';
import { requestWith } from './requests.js';
import { seedKeys } from './seed.js';

// Measures the preload of records: its effect on concurrent requests, alternating with a gateway without preload, and
// the requests that fail during an outage of Redis.

const options = optionsOf({
  ...{ keys: '100000', rate: '3000', turns: '2', seconds: '15' },
  ...{ outageKeys: '10000', outageRate: '2000', outageSeconds: '20' },
});
const keys = numberIn('keys', options.keys);
const rate = numberIn('rate', options.rate);
const turns = numberIn('turns', options.turns);
const seconds = numberIn('seconds', options.seconds);
const outageKeys = numberIn('outageKeys', options.outageKeys);
const outageRate = numberIn('outageRate', options.outageRate);
const outageSeconds = numberIn('outageSeconds', options.outageSeconds);
const [connections, gatewayCount, usedKeys, warmSeconds] = [64, 3, 1_000, 10];

interface Preloading extends GatewayProcess {
  readonly state: () => Promise<string>;
}

const t = new Teardowns();
try {
  const beside = await measureBeside();
  const outage = await measureOutage();
  const result = { keys, rate, beside, outage };
  if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
  else {
    const lines = beside.map(
      ({ preload, completeSeconds, mebibytes, milliseconds }) =>
        `${preload ? 'with   ' : 'without'} preload: ${distributionText(milliseconds)}; ${mebibytes ?? '?'} MiB` +
        (preload ? `; complete after ${completeSeconds.join(', ')} s` : ''),
    );
    const { requests, errors, stopped } = outage;
    process.stdout.write(
      [
        `${keys} keys, ${rate} requests a second; everything held is dropped at the beginning of each turn; milliseconds`,
        ...lines,
        `Redis ${stopped} for ${outageSeconds} s, ${gatewayCount} gateways, ${outageKeys} keys: ${errors} of ${requests} requests failed`,
        '',
      ].join('\n'),
    );
  }
  if (outage.errors > 0) process.exitCode = 1;
} finally {
  await t.close();
}

async function measureBeside() {
  const deployment = await startBenchDeployment(t);
  say(`seeding ${keys} keys`);
  await seedKeys(deployment, keys);
  const rounds = [];
  for (const preload of [false, true, false, true]) {
    const gateway = await start(deployment, preload);
    const load = await openFixedRate(gateway.target, connections, rate);
    let number = 0;
    const next = (): string => requestWith((number += 1) % usedKeys);
    const run = (forSeconds: number) => load.run({ next, status: 200, seconds: forSeconds });
    await run(warmSeconds);
    if (preload) await reaches(gateway, 'complete');
    const latencies: number[] = [];
    const completeSeconds: number[] = [];
    for (let turn = 0; turn < turns; turn += 1) {
      // A gateway that loses its subscription drops its whole cache.
      await deployment.redis.client.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
      const running = run(seconds);
      if (preload) {
        await reaches(gateway, 'loading');
        completeSeconds.push(await reaches(gateway, 'complete'));
      }
      for (const latency of (await running).latencies) latencies.push(latency);
    }
    load.close();
    const mebibytes = await residentMebibytes(gateway.pid, 'VmHWM');
    rounds.push({ preload, completeSeconds, mebibytes, milliseconds: distributionOf(latencies) });
    say(JSON.stringify(rounds.at(-1)));
    process.kill(gateway.pid, 'SIGKILL');
  }
  return rounds;
}

async function measureOutage() {
  const deployment = await startBenchDeployment(t);
  say(`seeding ${outageKeys} keys`);
  await seedKeys(deployment, outageKeys);
  const gateways: Preloading[] = [];
  for (let count = 0; count < gatewayCount; count += 1) gateways.push(await start(deployment, true));
  for (const gateway of gateways) await reaches(gateway, 'complete');
  say(`Redis is stopped for ${outageSeconds} s`);
  deployment.redis.signal('SIGSTOP');
  let [errors, number] = [0, 0];
  const loads = await Promise.all(
    gateways.map(async ({ target }) => {
      const load = await openFixedRate(target, connections, outageRate / gatewayCount);
      const order = { next: () => requestWith((number += 1) % outageKeys), status: 200, seconds: outageSeconds };
      const result = await load.run({ ...order, onOtherStatus: () => (errors += 1) });
      load.close();
      return result;
    }),
  );
  deployment.redis.signal('SIGCONT');
  return { stopped: 'silent', requests: loads.reduce((sum, { requests }) => sum + requests, 0), errors };
}

/** Starts a gateway with a management port, where its preload state can be queried. */
async function start(deployment: Deployment, preload: boolean): Promise<Preloading> {
  const management = { host: '127.0.0.1', port: 0 };
  const gateway = await deployment.startGateway({ listen: { management }, keyStore: { cache: { preload } } });
  const state = async (): Promise<string> => {
    const { details } = JSON.parse((await gateway.page('readyz')).body) as {
      details: { records: { state: string } | null };
    };
    return details.records?.state ?? 'none';
  };
  return { ...gateway, state };
}

/** Waits until the gateway reports this preload state. @returns seconds waited */
async function reaches({ state }: Preloading, expected: string): Promise<number> {
  const began = performance.now();
  while ((await state()) !== expected) await wait(50);
  return round((performance.now() - began) / 1000);
}
