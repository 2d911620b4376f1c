import { setTimeout as wait } from 'node:timers/promises';
import { numberIn, optionsOf, say } from './command-line.js';
import type { Deployment, GatewayProcess } from '../deployment/deployment.js';
import { Teardowns } from '../deployment/teardowns.js';
import { startBenchDeployment } from './deployment.js';
import { residentMebibytes } from './resident-memory.js';
import { distributionOf, distributionText, round } from './distribution.js';
import { openFixedRate } from './load/fixed-rate.js';
import { requestWith } from './requests.js';
import { seedKeys } from './seed.js';

// Measures how the preload of records slows concurrent requests. The same gateway is measured in turns: while it
// preloads, and when it has all records. Also counts the requests that fail during an outage of Redis.

const options = optionsOf({
  ...{ keys: '100000', rate: '3000', turns: '6', seconds: '12' },
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
/** Seconds of load after the gateway has lost its cache. In this time, requests cache the keys in use again. */
const settleSeconds = 3;

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
    const { alone, beside: during, ratio, completeSeconds, mebibytes } = beside;
    const { requests, errors, stopped } = outage;
    process.stdout.write(
      [
        `${keys} keys, ${rate} requests a second, one gateway by turns of ${seconds} s; milliseconds`,
        `all records cached: ${distributionText(alone)}`,
        `preloading:         ${distributionText(during)}; p99 × ${ratio}; complete after ${completeSeconds.join(', ')} s; at most ${mebibytes ?? '?'} MiB`,
        `Redis ${stopped} for ${outageSeconds} s, ${gatewayCount} gateways, ${outageKeys} keys: ${errors} of ${requests} requests failed`,
        '',
      ].join('\n'),
    );
  }
  if (outage.errors > 0) process.exitCode = 1;
} finally {
  await t.close();
}

/**
 * Measures one gateway by turns: while it preloads, and while it has all records. Two processes would differ by more
 * than a preload costs.
 */
async function measureBeside() {
  const deployment = await startBenchDeployment(t);
  say(`seeding ${keys} keys`);
  await seedKeys(deployment, keys);
  const ofRegistry = await subscribers(deployment);
  const gateway = await start(deployment, true);
  const load = await openFixedRate(gateway.target, connections, rate);
  let number = 0;
  const next = (): string => requestWith((number += 1) % usedKeys);
  const run = async (forSeconds: number) => (await load.run({ next, status: 200, seconds: forSeconds })).latencies;
  const untilComplete = async (): Promise<void> => {
    while ((await gateway.state()) !== 'complete') await run(1);
  };
  await run(warmSeconds);
  await untilComplete();
  const [alone, beside, completeSeconds]: [number[], number[], number[]] = [[], [], []];
  for (let turn = 0; turn < turns; turn += 1) {
    for (const latency of await run(seconds)) alone.push(latency);
    // A gateway that loses its subscription drops its whole cache. So end all subscriptions except the registry's.
    const began = performance.now();
    for (const id of await subscribers(deployment))
      if (!ofRegistry.includes(id)) await deployment.redis.client.call('CLIENT', 'KILL', 'ID', id);
    await reaches(gateway, 'loading');
    await run(settleSeconds);
    for (const latency of await run(seconds)) beside.push(latency);
    if ((await gateway.state()) !== 'loading')
      throw new Error('the preload ended first: give more --keys or fewer --seconds');
    await untilComplete();
    completeSeconds.push(round((performance.now() - began) / 1000));
    say(JSON.stringify({ turn, alone: distributionOf(alone), beside: distributionOf(beside), completeSeconds }));
  }
  load.close();
  const mebibytes = await residentMebibytes(gateway.pid, 'VmHWM');
  process.kill(gateway.pid, 'SIGKILL');
  const result = { alone: distributionOf(alone), beside: distributionOf(beside) };
  return { ...result, ratio: round(result.beside.p99 / result.alone.p99), completeSeconds, mebibytes };
}

/** The ids of the connections that receive notices from Redis. */
async function subscribers({ redis }: Deployment): Promise<string[]> {
  const list = (await redis.client.call('CLIENT', 'LIST', 'TYPE', 'pubsub')) as string;
  return [...list.matchAll(/^id=(\d+) /gm)].map(([, id = '']) => id);
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
