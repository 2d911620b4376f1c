import { setTimeout as wait } from 'node:timers/promises';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { Random } from '../fuzz/random.js';
import { numberIn, optionsOf, say } from './command-line.js';
import type { GatewayProcess } from '../deployment/deployment.js';
import { Teardowns } from '../deployment/teardowns.js';
import { startBenchDeployment } from './deployment.js';
import { distributionOf, distributionText } from './distribution.js';
import { benchKey } from './key-file.js';
import { benchKeyId, seedKeys } from './seed.js';

// An attacker with write access to Redis changes records at random under load. Checks that no revoked or unknown key is
// ever accepted and that no valid key is rejected as invalid. Measures how soon the registry repairs each record.

const options = optionsOf({
  ...{ manipulations: '10000', keys: '600', gateways: '3', connections: '4', pause: '5', 'at-once': '8', seed: '1' },
  seconds: '1800',
});
const manipulations = numberIn('manipulations', options.manipulations);
const keys = numberIn('keys', options.keys);
const gatewayCount = numberIn('gateways', options.gateways);
const connections = numberIn('connections', options.connections);
/** Pause between two requests of a connection. */
const pauseMilliseconds = numberIn('pause', options.pause);
const atOnce = numberIn('at-once', options['at-once']);
const random = new Random(numberIn('seed', options.seed));
const deadline = performance.now() + numberIn('seconds', options.seconds) * 1000;

const repairedWithinMilliseconds = 10_000;
const pollMilliseconds = 2;
const kinds = ['good', 'revoked', 'unknown'] as const;
type Kind = (typeof kinds)[number];

interface Propagation {
  readonly gateways: number | null;
  readonly confirmed: number;
}

/** The kind of a key number: the first third is valid, the second revoked, the last was never created. */
function kindOf(number: number): Kind {
  return kinds[Math.floor((number * 3) / keys)] ?? 'unknown';
}

function nameOf(number: number): string {
  return `mg:key:${lookupIdOf(benchKey(number), null)}`;
}

const t = new Teardowns();
try {
  const deployment = await startBenchDeployment(t, { recordSecret: true });
  const redis = deployment.redis.client;
  say(`${keys} keys: a third good, a third revoked, a third that nobody made`);
  const made = Math.floor((keys * 2) / 3);
  await seedKeys(deployment, made);
  const gateways = await Promise.all(Array.from({ length: gatewayCount }, () => deployment.startGateway()));
  while (Number((await deployment.admin('GET', '/gateways')).data.length) < gatewayCount) await wait(20);
  const numbers = Array.from({ length: keys }, (_, number) => number);
  const ofKind = (kind: Kind): number[] => numbers.filter((number) => kindOf(number) === kind);
  const older = await texts(numbers);
  for (const number of ofKind('revoked')) await revokeInForce(number);
  const current = await texts(numbers);

  const counts = { asked: 0, accepted: 0, calledInvalid: 0, undecided: 0 };
  const run = { isOver: false };
  const asking = gateways.flatMap((gateway) => Array.from({ length: connections }, () => ask(gateway)));
  const before = await repaired();
  const times: number[] = [];
  const busy = new Set<number>();
  let begun = 0;
  await Promise.all(Array.from({ length: atOnce }, manipulate));
  run.isOver = true;
  await Promise.all(asking);
  const counted = (await repaired()) - before;

  const result = {
    ...{ manipulations: times.length, counted, requests: counts.asked, accepted: counts.accepted },
    ...{ calledInvalid: counts.calledInvalid, undecided: counts.undecided, milliseconds: distributionOf(times) },
  };
  if (options.json) process.stdout.write(`${JSON.stringify(result)}\n`);
  else {
    process.stdout.write(
      `${times.length} manipulations of ${keys} records beside ${counts.asked} requests to ${gatewayCount} gateways\n` +
        `milliseconds until the record was as the database says: ${distributionText(result.milliseconds)}\n` +
        `counted by the registry: ${counted}\n` +
        `accepted with keys that are revoked or were never made: ${counts.accepted}\n` +
        `good keys that were called invalid: ${counts.calledInvalid}, and that were answered with 503: ${counts.undecided}\n`,
    );
  }
  if (counts.accepted > 0 || counts.calledInvalid > 0 || times.length < manipulations || counted < times.length)
    process.exitCode = 1;

  async function texts(wanted: readonly number[]): Promise<(string | null)[]> {
    return Promise.all(wanted.map((number) => redis.get(nameOf(number))));
  }

  async function revokeInForce(number: number): Promise<void> {
    for (;;) {
      const { data } = await deployment.admin('POST', `/keys/${benchKeyId(number)}/revoke`);
      const { gateways: all, confirmed } = data.propagation as Propagation;
      if (all === gatewayCount && confirmed === gatewayCount) return;
      await wait(20);
    }
  }

  async function repaired(): Promise<number> {
    const text = await deployment.registry.metrics();
    const lines = text.matchAll(/^registry_records_repaired_total\{.*\} (\d+)$/gm);
    return [...lines].reduce((sum, [, count]) => sum + Number(count), 0);
  }

  async function ask(gateway: GatewayProcess): Promise<void> {
    while (!run.isOver) {
      const number = random.below(keys);
      const status = await gateway.ask(benchKey(number));
      counts.asked += 1;
      if (kindOf(number) !== 'good') counts.accepted += status === 200 ? 1 : 0;
      else if (status === 401) counts.calledInvalid += 1;
      else if (status !== 200) counts.undecided += 1;
      await wait(pauseMilliseconds);
    }
  }

  async function manipulate(): Promise<void> {
    while (begun < manipulations && performance.now() < deadline) {
      const number = random.below(keys);
      if (busy.has(number)) continue;
      busy.add(number);
      begun += 1;
      await writeOther(number);
      await untilRepaired(number);
      busy.delete(number);
      if (times.length % 1000 === 0) say(`${times.length} of ${manipulations} manipulations`);
    }
  }

  /** Randomly forges, truncates, deletes or replays a record, copies another over it, or changes its Redis type. */
  async function writeOther(number: number): Promise<void> {
    const [name, text] = [nameOf(number), current[number] ?? null];
    const another = current[random.pick(ofKind('good').filter((one) => one !== number))] ?? '';
    const forged = (): Promise<unknown> => redis.set(name, forgedOf(text ?? another));
    const ways: (() => Promise<unknown>)[] = [
      forged,
      () => redis.set(name, another), // copied
      () => redis.set(name, '{"keyId":'),
      () => redis.multi().del(name).rpush(name, 'a list').exec(),
    ];
    if (text !== null) ways.push(() => redis.del(name));
    if (text !== older[number]) ways.push(() => redis.set(name, older[number] ?? ''));
    await random.pick(ways)();
  }

  async function untilRepaired(number: number): Promise<void> {
    const since = performance.now();
    for (;;) {
      const text = await redis.get(nameOf(number)).catch(() => 'a list');
      if (text === (current[number] ?? null)) break;
      if (performance.now() - since > repairedWithinMilliseconds)
        throw new Error(
          `the record of key ${number} (${kindOf(number)}) was not repaired: ${text ?? 'it is not there'}`,
        );
      await wait(pollMilliseconds);
    }
    times.push(performance.now() - since);
  }
} finally {
  await t.close();
}

/** Changes a record so that its key would be accepted, but leaves its seal unchanged. */
function forgedOf(text: string): string {
  return text
    .replace(/"status":"\w+"/, '"status":"ACTIVE"')
    .replace(/"revision":\d+/, `"revision":${1_000 + random.below(1_000_000)}`);
}
