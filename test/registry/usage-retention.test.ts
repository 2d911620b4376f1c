import t, { type Test } from 'tap';
import { UsageBatches } from '../../src/registry/usage/usage-batches.js';
import { OldUsage, type OldUsageOptions } from '../../src/registry/usage/old-usage.js';
import type { UsageTables } from '../../src/registry/usage/tables.js';
import { type UsageBatch } from '../../src/usage/batch.js';
import { batchText } from '../usage/batch-text.js';
import { onEachDatabase } from '../database/each-database.js';
import { projectionFixture } from './projection-fixture.js';
import { addressCount, codeCount, day, hour, keyUsage, merchantUsage, refusal, usageBatch } from './usage-fixture.js';

const dayMilliseconds = 86_400_000;

/** A registry that keeps counts for 90 days and refusals for 7. */
async function keepingUsage(t: Test, url: string) {
  const fixture = await projectionFixture(t, url);
  const { database, time, projection } = fixture;
  const one = projection('one');
  await one.run();
  const batches = new UsageBatches({ database, clock: time, addresses: 'full' });
  const monotonic = { ahead: 0 };
  const oldUsage = (more: object = {}): OldUsage =>
    new OldUsage({
      ...{ database, hoursDays: 90, refusalsDays: 7, timers: time, clock: time, projection: one },
      ...{ monotonic: () => time.now() - monotonic.ahead, ...more },
    });
  let sequence = 0;
  return {
    ...{ ...fixture, oldUsage, monotonic },
    /** Adds a batch whose rows have this age in days. */
    add: async (age: number, more: Partial<UsageBatch> = {}): Promise<void> => {
      const past = age * dayMilliseconds;
      const key = keyUsage('key_1', {
        codes: [codeCount('accepted', 1, { hour: hour - past })],
        addresses: [addressCount('192.0.2.1', 1, { day: day - past })],
        agents: [{ day: day - past, agent: 'curl', count: 1 }],
        lastUse: { at: hour - past, address: '192.0.2.1', country: null },
      });
      const merchant = merchantUsage('m_1', {
        hosts: [{ day: day - past, header: 'host', host: 'shop.example', accepted: 1, refused: 0 }],
        refusals: [refusal(`r-${age}`, { at: time.now() - past })],
      });
      sequence += 1;
      const batch = usageBatch({ sequence, keys: [key], merchants: [merchant], ...more });
      t.match(JSON.parse(await batches.add(await batchText(batch))), { sequence: batch.sequence });
    },
    forget: async (usage: OldUsage): Promise<void> => {
      while (await usage.forget());
    },
    rows: async (table: keyof UsageTables): Promise<number> => {
      const counted = database.selectFrom(table).select((it) => it.fn.countAll<number>().as('count'));
      return (await counted.executeTakeFirstOrThrow()).count;
    },
  };
}

const tablesByDay = ['usage_hours', 'usage_addresses', 'usage_agents', 'usage_hosts'] as const;

onEachDatabase('counts and refusals are deleted after their retention periods', async (t, url) => {
  const { add, forget, oldUsage, rows } = await keepingUsage(t, url);
  for (const age of [0, 6, 8, 89, 92, 200]) await add(age);
  await forget(oldUsage());
  for (const table of tablesByDay) t.equal(await rows(table), 4, table);
  t.equal(await rows('usage_refusals'), 2);
  t.equal(await rows('usage_keys'), 1, 'the last use of a key stays');
});

onEachDatabase('a row of exactly the retention period stays; one that is a millisecond older goes', async (t, url) => {
  const { add, database, forget, oldUsage, time } = await keepingUsage(t, url);
  const at = time.now() - 7 * dayMilliseconds;
  await add(0, {
    merchants: [merchantUsage('m_1', { refusals: [refusal('r-1', { at }), refusal('r-2', { at: at - 1 })] })],
  });
  await forget(oldUsage());
  const left = await database.selectFrom('usage_refusals').select('at').execute();
  t.same(left, [{ at }]);
});

onEachDatabase(
  'a process is deleted with its gaps when it was silent for as long as counts are kept',
  async (t, url) => {
    const { add, forget, oldUsage, rows, time } = await keepingUsage(t, url);
    await add(0, { process: 'p-old', sequence: 5, acknowledged: 4 });
    time.advance(91 * dayMilliseconds);
    await add(0, { process: 'p-new', sequence: 2, acknowledged: 1 });
    t.same([await rows('usage_processes'), await rows('usage_gaps')], [2, 2]);
    await forget(oldUsage());
    t.same([await rows('usage_processes'), await rows('usage_gaps')], [1, 1]);
  },
);

onEachDatabase('each transaction deletes a bounded number of rows', async (t, url) => {
  const { database, forget, oldUsage, rows } = await keepingUsage(t, url);
  const old = {
    hour: hour - 100 * dayMilliseconds,
    merchant_id: 'm_1',
    environment: 'live',
    code: 'accepted',
    count: 1,
  };
  const totals = { total_milliseconds: 0, slowest_milliseconds: 0, request_bytes: 0, response_bytes: 0 };
  const process = { process: 'p-1', instance: 'i', environment: 'live', sequence: 1, first_at: 0, last_at: 0 };
  await database
    .insertInto('usage_processes')
    .values({ ...process, received_at: hour, is_ended: 0, dropped_refusals: 0, dropped_rows: 0 })
    .execute();
  const all = Array.from({ length: 5_001 }, (_, index) => ({ ...old, key_id: `key_${index}`, ...totals }));
  for (let from = 0; from < all.length; from += 1_000)
    await database
      .insertInto('usage_hours')
      .values(all.slice(from, from + 1_000))
      .execute();
  const usage = oldUsage();
  t.equal(await usage.forget(), true);
  t.equal(await rows('usage_hours'), 1);
  await forget(usage);
  t.equal(await rows('usage_hours'), 0);
});

t.test('a clock that is set forward does not age usage', async (t) => {
  const { add, forget, monotonic, oldUsage, rows, time } = await keepingUsage(t, 'sqlite::memory:');
  await add(0);
  const usage = oldUsage();
  await forget(usage);
  time.advance(365 * dayMilliseconds);
  monotonic.ahead = 365 * dayMilliseconds;
  await forget(usage);
  await forget(oldUsage());
  t.equal(await rows('usage_hours'), 1);
});

t.test('only the projecting registry deletes usage', async (t) => {
  const { add, forget, oldUsage, projection, rows } = await keepingUsage(t, 'sqlite::memory:');
  await add(200);
  await forget(oldUsage({ projection: projection('another') }));
  t.equal(await rows('usage_hours'), 1);
  // This process has compared the store, but another process has taken the lease since.
  const lease = { take: () => Promise.resolve(false) };
  await forget(oldUsage({ projection: { settledIn: 'g', lease } as unknown as OldUsageOptions['projection'] }));
  t.equal(await rows('usage_hours'), 1);
  await forget(oldUsage());
  t.equal(await rows('usage_hours'), 0);
});
