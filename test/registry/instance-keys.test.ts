import { sql } from 'kysely';
import t from 'tap';
import { keyText, NoteSigner } from '../../src/evidence/signed-note.js';
import { pinFirst } from '../../src/registry/checkpoints/instance-keys.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';
import { until } from './manual-time.js';
import { registryFixture } from './registry-fixture.js';

for (const [what, path, expected] of [
  [
    'confirmations',
    '/instance-keys/confirm',
    { status: 200, actions: ['instance-key.pinned', 'instance-key.confirmed'] },
  ],
  ['requests to pin', '/instance-keys', { status: 201, actions: ['instance-key.pinned'] }],
] as const)
  t.test(`of two ${what} of a key at once, only one is an event`, postgresAlone, async (t) => {
    const { call, database, time } = await registryFixture(t, await createPostgresDatabase(t));
    const { key } = NoteSigner.inMemory('gw.example/a');
    const pinned = { now: time.now(), from: time.now() };
    if (path === '/instance-keys/confirm')
      await database.transaction().execute((transaction) => pinFirst(transaction, key, pinned));
    // Locks the end of the chain of events, so that both requests begin before one can commit.
    const held = await database.startTransaction().execute();
    await sql`select from event_tail for update`.execute(held);
    const requests = Promise.all([1, 2].map(() => call('POST', path, { body: { publicKey: keyText(key) } })));
    const waiting = sql<{ count: number }>`select count(*) as count from pg_locks where not granted and pid in
      (select pid from pg_stat_activity where datname = current_database())`;
    await until(async () => Number((await waiting.execute(database)).rows[0]?.count) === 2);
    await held.commit().execute();
    for (const { status } of await requests) t.equal(status, expected.status);
    const events = database.selectFrom('events').select('action').where('action', 'like', 'instance-key.%');
    t.same(
      (await events.orderBy('seq').execute()).map(({ action }) => action),
      expected.actions,
    );
  });
