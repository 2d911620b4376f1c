import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { sql } from '../../src/database/kysely.js';
import pg from 'pg';
import t, { type Test } from 'tap';
import { DatabaseError } from '../../src/database/database-error.js';
import { openDatabase, type DatabaseOptions } from '../../src/database/open-database.js';
import { openSession } from '../../src/database/session.js';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { openServicesDatabase } from '../../src/services/services-database.js';
import { productCommand } from '../product-command.js';
import { until } from '../registry/manual-time.js';
import { poolerAlone, startPgBouncer } from './pgbouncer.js';

const refusal =
  /^The PostgreSQL database mg_test_\w+ at 127\.0\.0\.1:\d+ is behind a pooler [^:]*: connect to PostgreSQL directly, or set "pool_mode = session" for this database in PgBouncer\.$/;

const parts = {
  registry: (options: DatabaseOptions) => openRegistryDatabase({ ...options, generation: 'r_1' }),
  services: openServicesDatabase,
};

async function refusals(t: Test, url: string): Promise<void> {
  for (const [part, open] of Object.entries(parts)) {
    const error: unknown = await open({ url }).then(
      (database) => database.destroy(),
      (reason: unknown) => reason,
    );
    t.type(error, DatabaseError, part);
    t.match((error as Error).message, refusal, part);
  }
}

/** Starts this many other clients of the same pooler. Until the end of the test, each runs one query after another. */
async function besideOthers(t: Test, url: string, count: number): Promise<void> {
  const clients = await Promise.all(
    Array.from({ length: count }, async () => {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      return client;
    }),
  );
  let isOver = false;
  const busy = clients.map(async (client) => {
    for (let turn = 0; !isOver; turn += 1) await client.query(`select pg_sleep(${(turn % 4) / 1000})`);
    await client.end();
  });
  t.teardown(async () => {
    isOver = true;
    await Promise.all(busy);
  });
}

for (const settings of [
  ['pool_mode = transaction'],
  ['pool_mode = transaction', 'default_pool_size = 1'],
  ['pool_mode = transaction', 'server_round_robin = 1', 'min_pool_size = 5'],
  ['pool_mode = transaction', 'ignore_startup_parameters = statement_timeout'],
  ['pool_mode = statement'],
]) {
  t.test(`PgBouncer with ${settings.join(', ')} is rejected`, poolerAlone, async (t) => {
    const { url, direct } = await startPgBouncer(t, settings);
    await refusals(t, url);
    const database = openDatabase({ url: direct });
    t.teardown(() => database.destroy());
    t.same(await database.introspection.getTables(), [], 'the database is unchanged');
  });
}

t.test('a busy pooler is recognised by its mode, not by its load', poolerAlone, async (t) => {
  const sharing = await startPgBouncer(t, ['pool_mode = transaction']);
  await besideOthers(t, sharing.url, 8);
  for (let attempt = 0; attempt < 10; attempt += 1) await refusals(t, sharing.url);

  const keeping = await startPgBouncer(t, ['pool_mode = session', 'default_pool_size = 30']);
  await besideOthers(t, keeping.url, 8);
  for (let attempt = 0; attempt < 10; attempt += 1) {
    await (await parts.registry({ url: keeping.url })).destroy();
  }
});

t.test('PgBouncer in session mode works like PostgreSQL', poolerAlone, async (t) => {
  const { url } = await startPgBouncer(t, ['pool_mode = session']);
  const database = await parts.services({ url });
  t.teardown(() => database.destroy());
  const shown = async (setting: string): Promise<unknown> =>
    (await sql.raw<Record<string, string>>(`show ${setting}`).execute(database)).rows;
  t.same(await shown('statement_timeout'), [{ statement_timeout: '10s' }]);
  t.same(await shown('idle_in_transaction_session_timeout'), [{ idle_in_transaction_session_timeout: '10s' }]);

  let notifications = 0;
  const [one, other] = [openSession({ url }, () => (notifications += 1)), openSession({ url })];
  t.teardown(() => one.close());
  t.teardown(() => other.close());
  await until(() => one.hold());
  t.notOk(await other.hold());
  other.notify();
  await until(() => notifications > 0);
  await one.close();
  await until(() => other.hold());
  t.pass('closing the client releases its lock');
});

t.test('a session behind a pooler in transaction mode gets no lock', poolerAlone, async (t) => {
  const { url, direct } = await startPgBouncer(t, ['pool_mode = transaction']);
  const [pooled, alone] = [openSession({ url }), openSession({ url: direct })];
  t.teardown(() => pooled.close());
  t.teardown(() => alone.close());
  t.notOk(await pooled.hold());
  await until(() => alone.hold());
});

t.test('the command line names the setting to change', poolerAlone, async (t) => {
  const { url } = await startPgBouncer(t, ['pool_mode = transaction']);
  const config = path.join(t.testdir(), 'gateway.yaml');
  for (const part of Object.keys(parts)) {
    await writeFile(config, `${part}: { database: { url: "${url}" } }\n`);
    const child = spawn(...productCommand(['database', 'migrate', part, '--create', '--config', config]), {
      stdio: 'pipe',
    });
    const [output, ended] = await Promise.all([text(child.stderr), once(child, 'close')]);
    t.same(ended, [1, null]);
    t.match(output.trim(), refusal);
  }
});
