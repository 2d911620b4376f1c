import { writeFileSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import type { Test } from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { covered } from './covered.js';
import { evaluate, withoutPromtool } from './promtool.js';
import type { Expectation, Scenario } from './promtool.js';
import { startRig, until } from './rig.js';
import type { Part, Rig } from './rig.js';
import { metricsOfRules, ruleFiles } from './rules.js';
import { causeMinute, causedMinutes, timeline } from './timeline.js';
import type { Scrape, Watched } from './timeline.js';

/** Test options: skipped if this machine lacks promtool or Redis. */
export const options = { skip: withoutPromtool || withoutRedis, timeout: 280_000 };

/** An address that is a Tor exit in these tests. */
export const exit = '198.51.100.66';

/** A well-formed but unknown key. */
export const unknownKey = (number: number): string => `svc_live_${String(number).padStart(24, 'x')}`;

/** Runs an action this many times concurrently. */
export async function times(count: number, act: (index: number) => Promise<unknown>): Promise<void> {
  await Promise.all(Array.from({ length: count }, (_, index) => act(index)));
}

/** The value of one series of a process; NaN without such a series. */
export async function metricValue(part: Part, series: string): Promise<number> {
  return valueIn(await part.scrape(), series);
}

function valueIn(scrape: Scrape | null | undefined, series: string): number {
  const line = scrape?.text.split('\n').find((one) => one.startsWith(`${series} `));
  return Number(line?.slice(series.length + 1) ?? NaN);
}

/** Whether a gateway was slow between two scrapes, or Redis was slow for it. */
function wasSlow(before: Scrape | null | undefined, after: Scrape | null | undefined): boolean {
  const gain = (series: string): number => (valueIn(after, series) || 0) - (valueIn(before, series) || 0);
  const decisions = gain('gateway_decision_duration_seconds_count');
  return (
    decisions > gain('gateway_decision_duration_seconds_bucket{le="0.1"}') ||
    gain('gateway_key_lookup_duration_seconds_count{source="stale"}') > 0 ||
    gain('gateway_rate_limit_counts_total{how="alone"}') > 0 ||
    valueIn(after, 'nodejs_eventloop_lag_p99_seconds') > 0.2 ||
    valueIn(after, 'gateway_overloaded') === 1
  );
}

/** Sends a request to the services, like a gateway. */
export async function askServices({ ports }: Part, target = '/transactions'): Promise<number> {
  const headers = { 'x-merchant-id': 'm_1', 'x-merchant-environment': 'live' };
  return (await fetch(`http://127.0.0.1:${ports.api ?? 0}${target}`, { headers })).status;
}

/** Suspends a process `count` times, each time for `milliseconds`, which delays its event loop. */
export async function stall({ child }: Part, milliseconds: number, count = 1): Promise<void> {
  for (let time = 0; time < count; time += 1) {
    child.kill('SIGSTOP');
    await wait(milliseconds);
    child.kill('SIGCONT');
    await wait(20);
  }
}

const processes = ['gateway 1', 'gateway 2', 'registry', 'services'] as const;
type Name = (typeof processes)[number];

/** Starts two gateways, a registry and services as processes, with one merchant. */
async function deploy(rig: Rig) {
  const registry = await rig.start('registry');
  const [services, ...gateways] = await Promise.all([
    rig.start('services'),
    rig.start('gateway'),
    rig.start('gateway'),
  ]);
  const { data: merchant } = await rig.admin(registry, 'POST', '/merchants', {
    name: 'Shop',
    status: 'ACTIVE',
    goLive: true,
  });
  const createKey = async (): Promise<{ key: string; keyId: string }> =>
    (await rig.admin(registry, 'POST', `/merchants/${merchant.id}/keys`, { environment: 'live' })).data;
  const { key, keyId } = await createKey();
  for (const gateway of gateways)
    await until('a gateway serves', async () => (await rig.ask(gateway, { key })) === 200);
  await until('the registry knows both', async () => (await metricValue(registry, 'registry_gateways')) === 2);
  return { registry, services, gateways, merchant, key, keyId, createKey };
}

type Deployment = Awaited<ReturnType<typeof deploy>>;

/** Sends one minute of ordinary traffic, including requests of scanners and of clients with mistakes. */
async function ordinary(
  { ask, admin }: Rig,
  { registry, services, gateways, merchant, key }: Deployment,
): Promise<void> {
  for (const one of gateways) {
    for (let round = 0; round < 5; round += 1) await times(4, () => ask(one, { key }));
    for (const from of ['203.0.113.1', '203.0.113.2']) await ask(one, { key, path: '/payouts', from });
    await ask(one, { key: null });
    await ask(one, { key: null, isPlain: true });
    await ask(one, { key: unknownKey(0), isPlain: true });
    await ask(one, { key: null, from: exit });
    await ask(one, { key: unknownKey(1) });
    await ask(one, { key, path: '/nowhere' });
  }
  await times(20, () => askServices(services));
  await askServices(services, '/nowhere');
  await admin(registry, 'GET', '/merchants');
  await admin(registry, 'PATCH', `/merchants/${merchant.id}`, { name: 'Shop' });
}

/**
 * Starts a deployment and records its metrics before and after a minute of ordinary traffic. Each scenario begins with
 * a quiet hour that consists of repetitions of this minute. Returns functions that add scenarios and evaluate them.
 */
export async function openScenes(t: Test, test: keyof typeof covered) {
  const rig = await startRig(t);
  const deployment = await deploy(rig);
  const { registry, services, gateways } = deployment;
  const parts: Readonly<Record<Name, Part>> = {
    'gateway 1': gateways[0],
    'gateway 2': gateways[1],
    registry,
    services,
  };
  const minute = async (): Promise<Scrapes> => {
    await ordinary(rig, deployment);
    for (const one of gateways) {
      await until('it is ready', async () => (await metricValue(one, 'gateway_ready')) === 1);
      const complete = 'gateway_record_preload_state{state="complete"}';
      await until('it holds every record', async () => (await metricValue(one, complete)) === 1);
    }
    return scrapeAll(parts);
  };
  await minute(); // so that the first request of each kind is not in the figures
  let [first, second] = [await minute(), await minute()];
  // A stall of the machine in this minute would rightly cause alerts on slow gateways. So the minute is repeated until
  // the machine does not stall.
  await until(
    'a minute in which the machine does not stall',
    async () => {
      const isQuiet = !['gateway 1', 'gateway 2'].some((name) => wasSlow(first.get(name), second.get(name)));
      if (!isQuiet) [first, second] = [second, await minute()];
      return isQuiet;
    },
    120,
  );
  const scenarios: Scenario[] = [];
  const caused = new Set<string>();

  const watched = (before: Scrapes, after: Scrapes): Watched[] =>
    [...new Set([...processes, ...after.keys()])].map((one) => {
      const [earlier, later] = [first.get(one) ?? null, second.get(one) ?? null];
      const quiet = earlier === null || later === null ? null : ([earlier, later] as const);
      const service = one.startsWith('gateway') ? 'live-management' : one;
      const entry = { service, instance: one, quiet };
      return after.has(one) ? { ...entry, caused: [before.get(one) ?? null, after.get(one) ?? null] } : entry;
    });
  const add = (name: string, before: Scrapes, after: Scrapes, expected: readonly Expectation[]): void => {
    scenarios.push({ name, input: timeline(watched(before, after), metricsOfRules), expected });
  };
  const minutes = Array.from({ length: 18 }, (_, index) => 5 * (index + 1));
  add(
    'a quiet hour',
    new Map(),
    new Map(),
    minutes.map((minute) => ({ minute, fires: null })),
  );

  return {
    ...rig,
    ...deployment,
    parts,
    /** All series of the processes in a quiet hour. */
    quietSeries: timeline(watched(new Map(), new Map()), null),
    /**
     * Causes an event and adds a scenario with the metrics before and after that event.
     * @param alerts the alerts that fire because of the event
     * @param changed the processes with new metrics; a replacement process continues the series of its predecessor
     * @param isSo whether the event shows in the metrics; if omitted, the metrics are read right after `act`
     */
    caused: async (
      alerts: readonly string[],
      changed: Readonly<Record<string, Part>>,
      act: () => unknown,
      isSo?: () => Promise<boolean> | boolean,
    ): Promise<void> => {
      const before = await scrapeAll(changed);
      await act();
      let after = await scrapeAll(changed);
      // Check before and after the scrape: an intermittent state may end in between.
      if (isSo !== undefined)
        await until(alerts.join(), async () => {
          if (!(await isSo())) return false;
          after = await scrapeAll(changed);
          return isSo();
        });
      for (const alert of alerts) caused.add(alert);
      const expected = alerts.flatMap((alert): Expectation[] => [
        { minute: causeMinute, fires: null, silent: alert },
        { minute: causeMinute + causedMinutes, fires: alert },
      ]);
      add(alerts.join(', '), before, after, expected);
    },
    /** Adds a scenario with metrics that the test itself has read. */
    add: (alert: string, name: string, before: Scrape, after: Scrape): void => {
      caused.add(alert);
      const expected = [
        { minute: causeMinute, fires: null, silent: alert },
        { minute: causeMinute + causedMinutes, fires: alert },
      ];
      add(alert, new Map([[name, before]]), new Map([[name, after]]), expected);
    },
    /** Evaluates the rules over all scenarios. */
    evaluate: (): void => {
      t.same([...caused].toSorted(), [...covered[test]].toSorted(), 'each alert of this test was caused');
      for (const file of ruleFiles(rig.folder, writeFileSync))
        t.equal(evaluate(rig.folder, file, scenarios), null, file);
    },
  };
}

type Scrapes = ReadonlyMap<string, Scrape | null>;

async function scrapeAll(parts: Readonly<Record<string, Part>>): Promise<Scrapes> {
  const scraped = await Promise.all(
    Object.entries(parts).map(async ([name, part]) => [name, await part.scrape()] as const),
  );
  return new Map(scraped);
}
