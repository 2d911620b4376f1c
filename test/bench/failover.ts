import { setTimeout as wait } from 'node:timers/promises';
import { startSentinel } from '../truth/stores.js';
import { numberIn, optionsOf, say } from './command-line.js';
import type { Deployment, GatewayProcess } from '../deployment/deployment.js';
import { Teardowns } from '../deployment/teardowns.js';
import { startBenchDeployment } from './deployment.js';
import { distributionOf, distributionText } from './distribution.js';
import { benchKey } from './key-file.js';
import { openFixedRate } from './load/fixed-rate.js';
import { requestWith } from './requests.js';
import { benchKeyId, seedKeys } from './seed.js';

// A planned Sentinel failover under load. Half of the requests have keys that each gateway has cached, half have keys
// that no gateway has seen. Each response other than 200 is an error. The load continues until the old master is
// demoted and every gateway has confirmed a revocation that began after the failover.

const options = optionsOf({
  ...{ keys: '1000000', held: '3000', rate: '1000', seconds: '40', gateways: '3', connections: '64' },
});
const keys = numberIn('keys', options.keys);
const held = numberIn('held', options.held);
const rate = numberIn('rate', options.rate);
const seconds = numberIn('seconds', options.seconds);
const gatewayCount = numberIn('gateways', options.gateways);
const connections = numberIn('connections', options.connections);
const [revokedBefore, revokedLater, firstHeld] = [0, 1, 2];
const moreSeconds = 5;
const longestMilliseconds = 300_000;

interface Propagation {
  readonly gateways: number | null;
  readonly confirmed: number;
  readonly pending: readonly unknown[];
}

interface Seen {
  readonly latencies: number[];
  readonly others: { readonly status: number; readonly at: number }[];
}

/** Requests to one gateway at a fixed rate: half with cached keys, half with keys that no gateway has seen. */
class MixedLoad {
  readonly seen = { held: emptySeen(), new: emptySeen() };
  readonly #gateway: GatewayProcess;
  #nextHeld = 0;
  #nextNew: number;

  constructor(gateway: GatewayProcess, index: number) {
    this.#gateway = gateway;
    this.#nextNew = firstHeld + held + index;
  }

  async run(isOver: () => boolean): Promise<void> {
    const ofHeld = (): number => firstHeld + (this.#nextHeld++ % held);
    const ofNew = (): number => {
      const number = this.#nextNew;
      this.#nextNew += gatewayCount;
      if (number >= keys) throw new Error('there are no keys left that no gateway was asked for');
      return number;
    };
    await Promise.all([this.#ask(this.seen.held, ofHeld, isOver), this.#ask(this.seen.new, ofNew, isOver)]);
  }

  async #ask(seen: Seen, keyNumber: () => number, isOver: () => boolean): Promise<void> {
    const load = await openFixedRate(this.#gateway.target, connections, rate / gatewayCount / 2);
    const next = (): string => requestWith(keyNumber());
    const onOtherStatus = (status: number): void => {
      seen.others.push({ status, at: performance.now() });
    };
    for (let length = seconds; !isOver() || length === seconds; length = moreSeconds) {
      const { latencies } = await load.run({ next, status: 200, onOtherStatus, seconds: length });
      for (const latency of latencies) seen.latencies.push(latency);
    }
    load.close();
  }
}

const t = new Teardowns();
try {
  const store = await startSentinel(t, false);
  const [redis] = await store.masters();
  if (redis === undefined) throw new Error('there is no master');
  const deployment = await startBenchDeployment(t, {
    store: { redis, fields: store.configOf({ portOf: ({ port }) => port }) },
  });
  say(`seeding ${keys} keys`);
  await seedKeys(deployment, keys);
  await store.settled();
  const gateways: GatewayProcess[] = [];
  for (let number = 0; number < gatewayCount; number += 1) gateways.push(await deployment.startGateway());
  while (Number((await deployment.admin('GET', '/gateways')).data.length) < gatewayCount) await wait(50);
  await revokedInForce(deployment, revokedBefore);
  say(`${gatewayCount} gateways; each is asked for ${held} keys`);
  for (const gateway of gateways) await holdAll(gateway);

  say(`${rate} requests a second for ${seconds} s; the failover is after half of that`);
  const load = gateways.map((gateway, index) => new MixedLoad(gateway, index));
  const run = { isOver: false };
  const running = Promise.all(load.map((one) => one.run(() => run.isOver)));
  await wait(seconds * 500);
  const metaBefore = await redis.client.get('mg:meta');
  const begun = performance.now();
  const [sentinel] = store.sentinels;
  await sentinel?.client.call('SENTINEL', 'FAILOVER', 'mymaster');
  const demoting = until(async () => (await store.masters()).every(({ port }) => port !== redis.port), begun);
  const named = await until(async () => {
    const address = (await sentinel?.client.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'mymaster')) as string[];
    return address[1] !== String(redis.port);
  }, begun);
  say(`the sentinel named another master after ${named} ms`);
  // Revoke the next key only after the registry has rewritten all records on the new master. Before that, gateways
  // could confirm a revocation that only the former master has.
  const rebuilt = await until(async () => {
    const [master] = (await store.masters()).filter(({ port }) => port !== redis.port);
    const meta = (await master?.client.get('mg:meta')) ?? null;
    return meta !== null && meta !== metaBefore;
  }, begun);
  say(`everything was written anew after ${rebuilt} ms`);
  await revokedInForce(deployment, revokedLater);
  const inForce = Math.round(performance.now() - begun);
  say(`a revocation was in force after ${inForce} ms`);
  const accepted = await Promise.all(gateways.map((gateway) => gateway.ask(benchKey(revokedLater))));
  const demoted = await demoting;
  run.isOver = true;
  await running;

  const kinds = ['held', 'new'] as const;
  const stats = kinds.map((kind) => {
    const these = load.map(({ seen }) => seen[kind]);
    const others = these.flatMap((seen) => seen.others).toSorted((one, other) => one.at - other.at);
    const latencies = these.flatMap((seen) => seen.latencies);
    return {
      ...{ kind, requests: latencies.length, errors: others.length },
      statuses: [...new Set(others.map(({ status }) => status))],
      between: others.length === 0 ? null : [others[0], others.at(-1)].map((one) => Math.round((one?.at ?? 0) - begun)),
      milliseconds: distributionOf(latencies),
    };
  });
  const isRefused = accepted.every((status) => status === 401);
  const times = {
    ...{ namedMilliseconds: named, rebuiltMilliseconds: rebuilt, inForceMilliseconds: inForce },
    demotedMilliseconds: demoted,
  };
  if (options.json) {
    process.stdout.write(`${JSON.stringify({ keys, gateways: gatewayCount, rate, ...times, isRefused, stats })}\n`);
  } else {
    const lines = stats.map(({ kind, requests, errors, statuses, between, milliseconds }) => {
      const when =
        between === null ? '' : `, ${statuses.join(' and ')}, ${between.join(' to ')} ms after the failover began`;
      return `${requests} requests with ${kind} keys: ${errors} errors${when}; milliseconds: ${distributionText(milliseconds)}`;
    });
    process.stdout.write(
      [
        `${keys} keys, ${gatewayCount} gateways, ${rate} requests a second`,
        ...lines,
        `after ${named} ms the sentinel named another master, after ${demoted} ms the former one was demoted`,
        `after ${rebuilt} ms everything was written anew, after ${inForce} ms a revocation was in force; then refused by each gateway: ${isRefused ? 'yes' : 'no'}`,
        '',
      ].join('\n'),
    );
  }
  if (!isRefused || stats.some(({ errors }) => errors > 0)) process.exitCode = 1;
} finally {
  await t.close();
}

function emptySeen(): Seen {
  return { latencies: [], others: [] };
}

/** Makes a gateway cache the keys of the load and the key that is revoked later. */
async function holdAll(gateway: GatewayProcess): Promise<void> {
  for (let number = revokedLater; number < firstHeld + held; number += 1) {
    const status = await gateway.ask(benchKey(number));
    if (status !== 200) throw new Error(`key ${number} was answered with ${status}`);
  }
}

/** Polls until the condition holds. @returns milliseconds since `since` */
async function until(holds: () => Promise<boolean>, since: number): Promise<number> {
  while (!(await holds())) await wait(20);
  return Math.round(performance.now() - since);
}

/** Revokes a key and repeats the request until every gateway has confirmed the revocation. */
async function revokedInForce(deployment: Deployment, keyNumber: number): Promise<void> {
  const deadline = performance.now() + longestMilliseconds;
  while (performance.now() < deadline) {
    const { data } = await deployment.admin('POST', `/keys/${benchKeyId(keyNumber)}/revoke`);
    const { gateways, confirmed, pending } = data.propagation as Propagation;
    if (gateways === gatewayCount && confirmed === gateways && pending.length === 0) return;
    await wait(50);
  }
  throw new Error('a revocation was never in force');
}
