import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { inspect } from 'node:util';
import pg from 'pg';
import t from 'tap';
import { DatabaseError, isUniqueViolation, postgresFailure } from '../../src/database/database-error.js';
import { addSequence } from '../../src/database/dialects.js';
import { type Generated, type Kysely, sql } from '../../src/database/kysely.js';
import { migrate, type Migrations, openDatabase, openMigrated, WriteProbe } from '../../src/database/open-database.js';
import { freePort } from '../adapters/redis-server.js';
import { createPostgresDatabase, onEachDatabase, onServer, postgresAlone } from './each-database.js';

interface Tables {
  things: { id: Generated<number>; name: string | null; amount: unknown };
  parts: { thing_id: number };
}

const first: Migrations = {
  '0001-things': {
    up: async (database: Kysely<unknown>) => {
      await addSequence(database, database.schema.createTable('things'), 'id')
        .addColumn('name', 'text', (column) => column.unique())
        .addColumn('amount', 'bigint')
        .execute();
    },
  },
};

t.test('a file database stores its records in WAL mode and creates missing directories', async (t) => {
  const path = `${t.testdir()}/not/there/yet.db`;
  const database = openDatabase<Tables>({ url: `sqlite:${path}` });
  await migrate(database, first);
  await database.insertInto('things').values({ name: 'kept', amount: 1 }).execute();
  t.ok(statSync(`${path}-wal`).size > 0);
  await database.destroy();

  const again = openDatabase<Tables>({ url: `sqlite:${path}` });
  t.teardown(() => again.destroy());
  await migrate(again, first);
  t.match(await again.selectFrom('things').selectAll().execute(), [{ id: 1, name: 'kept', amount: 1 }]);
});

t.test('an invalid database file or URL is rejected with a one-sentence remedy', (t) => {
  const directory = t.testdir({ 'notes.txt': 'no database, '.repeat(500), folder: {}, empty: '' });
  const cases: [url: string, message: RegExp][] = [
    [
      'mysql://user:secret@db/x',
      /^A database URL must be sqlite:PATH, sqlite::memory: or postgres:\/\/\S+; the configured URL begins with mysql:\.$/,
    ],
    ['var/registry.db', /^A database URL must be sqlite:PATH, sqlite::memory: or postgres:\/\/[^;]*\.$/],
    ['sqlite:', /must be sqlite:PATH/],
    ['', /must be sqlite:PATH/],
    ['postgres://user:secret@:x/y', /^The PostgreSQL URL is malformed: write postgres:/],
    ['postgres://user:secret@db/%zz', /^The PostgreSQL URL is malformed/],
    [`sqlite:${directory}/notes.txt`, /notes\.txt is not an SQLite database: move it away, or choose another path\.$/],
    [
      `sqlite:${directory}/folder`,
      /folder cannot be opened for writing \(it is a directory\): check that it is a file/,
    ],
    [
      `sqlite:${directory}/notes.txt/below/x.db`,
      /^The database directory .*below cannot be created \([^)]+\): create it yourself/,
    ],
    ['sqlite:/proc/x.db', /^The database \/proc\/x\.db cannot be opened for writing \([^)]+\): check/],
  ];
  for (const [url, message] of cases) {
    const error = thrownBy(() => openDatabase({ url }));
    t.match(error.message, message);
    t.notMatch(error.message, /secret|SqliteError|ConnectionFailed/);
  }
  t.end();
});

onEachDatabase('migrations run once in order of name, and a later one is added', async (t, url) => {
  const database = openDatabase<Tables>({ url });
  t.teardown(() => database.destroy());
  await migrate(database, first);
  await migrate(database, first);
  const second: Migrations = {
    '0002-parts': {
      up: async (database: Kysely<unknown>) => {
        await database.schema
          .createTable('parts')
          .addColumn('thing_id', 'bigint', (column) => column.references('things.id'))
          .execute();
      },
    },
    ...first,
  };
  await migrate(database, second);
  await t.rejects(
    database.insertInto('parts').values({ thing_id: 9 }).execute(),
    /FOREIGN KEY/i,
    'foreign keys are enforced',
  );
});

onEachDatabase('a failed migration is rolled back', async (t, url) => {
  const database = openDatabase<Tables>({ url });
  t.teardown(() => database.destroy());
  const failing: Migrations = {
    ...first,
    '0002-breaks': {
      up: async (database: Kysely<unknown>) => {
        await database.schema.createTable('half').addColumn('id', 'integer').execute();
        throw new Error('out of luck');
      },
    },
  };
  const error = {
    message: 'The database migration failed at "0002-breaks" and changed nothing: out of luck.',
  };
  await t.rejects(migrate(database, failing), error);
  const tables = await database.introspection.getTables();
  t.same(
    tables.map(({ name }) => name),
    [],
  );
  await migrate(database, first);
});

onEachDatabase('a database of a newer version or of another part is not changed', async (t, url) => {
  const database = openDatabase<Tables>({ url });
  t.teardown(() => database.destroy());
  await migrate(database, { ...first, '0002-more': { up: () => Promise.resolve() } });
  await t.rejects(migrate(database, first), {
    name: 'DatabaseError',
    message: /written by a newer version \(it has migration "0002-more"\)/,
  });
  await t.rejects(
    migrate(database, { '0001-others': { up: () => Promise.resolve() } }),
    {
      name: 'DatabaseError',
      message:
        'The database belongs to another part of merchant-gateway (it has migration "0001-things") and was not changed: give each part a separate database.',
    },
    'a wrong URL does not suggest to restore a backup',
  );
});

t.test('values are read back unchanged, or rejected on write', async (t) => {
  const database = openDatabase<Tables>({ url: 'sqlite::memory:' });
  t.teardown(() => database.destroy());
  await migrate(database, first);
  const store = async (amount: unknown) => {
    const row = await database
      .insertInto('things')
      .values({ amount })
      .returning(['amount', (it) => it.fn<string>('typeof', ['amount']).as('type')])
      .executeTakeFirstOrThrow();
    return [row.amount, row.type];
  };
  t.same(await store(Number.MAX_SAFE_INTEGER), [Number.MAX_SAFE_INTEGER, 'integer']);
  t.same(await store(Number.MIN_SAFE_INTEGER), [Number.MIN_SAFE_INTEGER, 'integer']);
  t.same(await store(1.5), [1.5, 'real']);
  t.same(await store(null), [null, 'null']);
  t.same(await store('Ọlá 🏦'), ['Ọlá 🏦', 'text']);
  for (const value of [true, false, 2 ** 53, Infinity, NaN, 'a\0b', '\ud800', {}, new Date(0)]) {
    await t.rejects(store(value), TypeError, JSON.stringify(value));
  }
});

onEachDatabase('a unique violation is distinguished from other errors', async (t, url) => {
  const database = openDatabase<Tables>({ url });
  t.teardown(() => database.destroy());
  await migrate(database, first);
  await database.insertInto('things').values({ name: 'one', amount: 1 }).execute();
  const repeated = await database
    .insertInto('things')
    .values({ name: 'one', amount: 1 })
    .execute()
    .catch((error: unknown) => error);
  const missing = await database
    .selectFrom('parts')
    .selectAll()
    .execute()
    .catch((error: unknown) => error);
  t.ok(isUniqueViolation(repeated));
  t.notOk(isUniqueViolation(missing));
  t.notOk(isUniqueViolation(new Error('UNIQUE')));
});

t.test('transactions on one connection do not interleave, and a failed one is rolled back', async (t) => {
  const database = openDatabase<Tables>({ url: 'sqlite::memory:' });
  t.teardown(() => database.destroy());
  await migrate(database, first);
  await database.insertInto('things').values({ name: 'counter', amount: 0 }).execute();
  const increment = (fails: boolean) =>
    database.transaction().execute(async (transaction) => {
      const { amount } = await transaction.selectFrom('things').select('amount').executeTakeFirstOrThrow();
      await new Promise(setImmediate);
      await transaction
        .updateTable('things')
        .set({ amount: Number(amount) + 1 })
        .execute();
      if (fails) throw new Error('undo');
    });
  const outcomes = await Promise.allSettled(Array.from({ length: 100 }, (_, index) => increment(index % 2 === 1)));
  t.equal(outcomes.filter(({ status }) => status === 'rejected').length, 50);
  t.match(await database.selectFrom('things').select('amount').execute(), [{ amount: 50 }]);
});

t.test("two connections to one file see each other's records", async (t) => {
  const url = `sqlite:${t.testdir()}/shared.db`;
  const one = openDatabase<Tables>({ url });
  const other = openDatabase<Tables>({ url });
  t.teardown(async () => {
    await one.destroy();
    await other.destroy();
  });
  await migrate(one, first);
  await migrate(other, first);
  await one.insertInto('things').values({ name: 'x', amount: 1 }).execute();
  t.same(await other.selectFrom('things').select('name').execute(), [{ name: 'x' }]);

  await sql`pragma busy_timeout = 0`.execute(other);
  await one.transaction().execute(async (transaction) => {
    await transaction.selectFrom('things').selectAll().execute();
    const write = other.insertInto('things').values({ name: 'y', amount: 1 }).execute();
    await t.rejects(
      write,
      { name: 'DatabaseError', cause: { code: 'SQLITE_BUSY' } },
      'what a transaction has read stays unchanged until it ends',
    );
  });
  const { rows } = await sql`pragma synchronous`.execute(one);
  t.match(rows, [{ synchronous: 2 }], 'each commit is synced to disk');
});

onEachDatabase('ids increase, and integers are read back as numbers up to the safe limits', async (t, url) => {
  const database = openDatabase<Tables>({ url });
  t.teardown(() => database.destroy());
  await migrate(database, first);
  const rows = [1, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER].map((amount) => ({ name: null, amount }));
  const added = await database.insertInto('things').values(rows).returningAll().execute();
  t.same(added, [
    { id: 1, name: null, amount: 1 },
    { id: 2, name: null, amount: Number.MAX_SAFE_INTEGER },
    { id: 3, name: null, amount: Number.MIN_SAFE_INTEGER },
  ]);
  const { count } = await database
    .selectFrom('things')
    .select((it) => it.fn.countAll<number>().as('count'))
    .executeTakeFirstOrThrow();
  t.equal(count, 3);
  await database.deleteFrom('things').execute();
  const { id } = await database
    .insertInto('things')
    .values({ name: 'x', amount: 0 })
    .returning('id')
    .executeTakeFirstOrThrow();
  t.equal(id, 4, 'an id is never reused');
});

t.test(
  'PostgreSQL: an integer beyond the safe range is an error; other clients of pg keep their type parsers',
  postgresAlone,
  async (t) => {
    const url = await createPostgresDatabase(t);
    const database = openDatabase<Tables>({ url });
    t.teardown(() => database.destroy());
    await t.rejects(sql`select 9007199254740993::bigint as n`.execute(database), RangeError);
    t.same((await sql`select 1::bigint as n, true as yes, 1.5::float8 as f`.execute(database)).rows, [
      { n: 1, yes: true, f: 1.5 },
    ]);
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    t.same((await client.query('select 1::bigint as n')).rows, [{ n: '1' }]);
    await client.end();
  },
);

t.test(
  'PostgreSQL: a database whose encoding cannot store every text is rejected unchanged',
  postgresAlone,
  async (t) => {
    const name = `mg_test_latin_${randomBytes(8).toString('hex')}`;
    await onServer(`create database ${name} encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0`);
    t.teardown(() => onServer(`drop database ${name} with (force)`));
    const url = new URL(await createPostgresDatabase(t));
    url.pathname = `/${name}`;
    const database = openDatabase<Tables>({ url: url.href });
    t.teardown(() => database.destroy());
    await t.rejects(migrate(database, first), {
      name: 'DatabaseError',
      message:
        /^The PostgreSQL database was not changed, because its encoding LATIN1 cannot store every character\. Create .* "create database NAME encoding 'UTF8' template template0"/,
    });
    t.same(await database.introspection.getTables(), []);
  },
);

t.test('PostgreSQL: a migration may exceed the statement timeout of requests', postgresAlone, async (t) => {
  // The statement timeout is long enough for the other statements on a busy machine.
  const pool = { maxConnections: 2, connectTimeoutSeconds: 60, statementTimeoutSeconds: 4 };
  const wait = sql`select pg_sleep(4.2)`;
  const slow: Migrations = {
    '0001-slow': { up: (database: Kysely<unknown>) => wait.execute(database).then(() => undefined) },
  };
  const database = await openMigrated<Tables>({ url: await createPostgresDatabase(t), pool }, slow);
  t.teardown(() => database.destroy());
  await t.rejects(wait.execute(database), { name: 'DatabaseError', message: /a statement took too long/ });
});

// A migration may take an hour. If it also waited that long for a lock, for example of a backup, every request that
// needs the table would wait, too.
t.test('PostgreSQL: a migration waits for a lock no longer than a request may', postgresAlone, async (t) => {
  const url = await createPostgresDatabase(t);
  const database = openDatabase<Tables>({ url });
  t.teardown(() => database.destroy());
  await migrate(database, first);
  const alter: Migrations = {
    ...first,
    '0002-alter': {
      up: async (database: Kysely<unknown>) => {
        const { rows } = await sql<object>`show lock_timeout`.execute(database);
        t.same(rows, [{ lock_timeout: '5s' }]);
        // A shorter timeout than configured, to speed up the test.
        await sql`set local lock_timeout = 1`.execute(database);
        await database.schema.alterTable('things').addColumn('more', 'text').execute();
      },
    },
  };
  await database.transaction().execute(async (transaction) => {
    await transaction.selectFrom('things').selectAll().execute();
    await t.rejects(openMigrated<Tables>({ url }, alter), {
      name: 'DatabaseError',
      message: /at "0002-alter" and changed nothing: .* another session holds a lock/,
    });
  });
  const migrated = await openMigrated<Tables>({ url }, alter);
  t.teardown(() => migrated.destroy());
  t.same(await sql`show lock_timeout`.execute(migrated).then(({ rows }) => rows), [{ lock_timeout: '0' }]);
});

t.test('PostgreSQL: a broken connection is replaced', postgresAlone, async (t) => {
  const database = openDatabase<Tables>({ url: await createPostgresDatabase(t) });
  t.teardown(() => database.destroy());
  const pid = async () => (await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(database)).rows[0]?.pid;
  const before = await pid();
  await onServer(`select pg_terminate_backend(${before ?? 0})`);
  const after = await pid().catch(pid);
  t.type(after, 'number');
  t.not(after, before);
});

t.test('PostgreSQL: connections to a formerly read-only server are replaced', postgresAlone, async (t) => {
  const url = await createPostgresDatabase(t);
  const name = new URL(url).pathname.slice(1);
  const database = openDatabase<Tables>({ url });
  t.teardown(() => database.destroy());
  await migrate(database, first);
  await database.destroy();
  await onServer(`alter database ${name} set default_transaction_read_only = on`);
  const opened = openDatabase<Tables>({ url });
  t.teardown(() => opened.destroy());
  const insert = () => opened.insertInto('things').values({ name: null, amount: 1 }).execute();
  const together = () => Promise.allSettled(Array.from({ length: 5 }, insert));
  const refused = await together();
  t.ok(
    refused.every((one) => one.status === 'rejected' && one.reason instanceof DatabaseError),
    'after a failover the name may lead to the standby for a while',
  );
  await onServer(`alter database ${name} set default_transaction_read_only = off`);
  t.match(await together(), Array(5).fill({ status: 'fulfilled' }));
});

t.test('PostgreSQL: the write probe needs only rights to the tables of its part', postgresAlone, async (t) => {
  const url = new URL(await createPostgresDatabase(t));
  const name = url.pathname.slice(1);
  const owner = openDatabase<Tables>({ url: url.href });
  await migrate(owner, first);
  const role = `${name}_reader`;
  await sql`create role ${sql.id(role)}`.execute(owner);
  t.teardown(() => onServer(`drop role ${role}`));
  t.teardown(async () => {
    await sql`drop owned by ${sql.id(role)}`.execute(owner);
    await owner.destroy();
  });
  await sql`grant select on all tables in schema public to ${sql.id(role)}`.execute(owner);
  url.searchParams.set('options', `-c role=${role}`);
  const asReader = async () => {
    const database = openDatabase<Tables>({ url: url.href });
    return new WriteProbe(database).problem().finally(() => database.destroy());
  };
  t.equal(await new WriteProbe(owner).problem(), null);
  t.equal(await asReader(), null, 'a role that may only read');
  await onServer(`alter database ${name} set default_transaction_read_only = on`);
  t.equal(await asReader(), 'The database is read-only');
  await onServer(`alter database ${name} set default_transaction_read_only = off`);
});

t.test('PostgreSQL: concurrent transactions lose no increment', postgresAlone, async (t) => {
  // Long timeouts: on a busy machine, the last transactions wait long for a connection.
  const pool = { maxConnections: 10, connectTimeoutSeconds: 120, statementTimeoutSeconds: 120 };
  const database = openDatabase<Tables>({ url: await createPostgresDatabase(t), pool });
  t.teardown(() => database.destroy());
  await migrate(database, first);
  await database.insertInto('things').values({ name: 'counter', amount: 0 }).execute();
  const increment = () =>
    database.transaction().execute((transaction) =>
      transaction
        .updateTable('things')
        .set((it) => ({ amount: it('amount', '+', 1) }))
        .returning('amount')
        .executeTakeFirstOrThrow(),
    );
  const seen = await Promise.all(Array.from({ length: 100 }, increment));
  t.equal(new Set(seen.map(({ amount }) => amount)).size, 100);
});

t.test(
  'PostgreSQL: a connection failure is reported in one sentence with a remedy and without the password',
  async (t) => {
    const port = await freePort();
    const hangsUp = createServer((socket) => socket.destroy()).listen(0, '127.0.0.1');
    await once(hangsUp, 'listening');
    t.teardown(() => hangsUp.close());
    const rude = (hangsUp.address() as AddressInfo).port;
    const cases: [url: string, message: RegExp][] = [
      [
        `postgres://user:s3cr3tw0rd@127.0.0.1:${port}/x`,
        /^The PostgreSQL database x at 127\.0\.0\.1:\d+ cannot be used: connection refused; start PostgreSQL, or correct the host and the port\.$/,
      ],
      [`postgres://user:s3cr3tw0rd%zz@127.0.0.1:${port}/x`, /cannot be used: connection refused/],
      [`postgres://user:s3cr3tw0rd@127.0.0.1:${rude}/x`, /cannot be used: [^.]+\.$/],
      [`postgres://user:s3cr3tw0rd@127.0.0.1:${rude}/x?sslmode=verify-full`, /cannot be used: [^.]+\.$/],
    ];
    for (const [url, message] of cases) {
      const database = openDatabase<Tables>({ url });
      const error: unknown = await migrate(database, first).then(
        () => null,
        (reason: unknown) => reason,
      );
      t.type(error, DatabaseError);
      t.match((error as Error).message, message);
      t.notMatch(inspect(error, { depth: 9, showHidden: true }), /s3cr3tw0rd/);
      await database.destroy();
    }
  },
);

t.test('PostgreSQL: each error of the server has its own remedy', (t) => {
  const cases: [error: object, remedy: RegExp][] = [
    [{ code: '28P01' }, /rejects the password/],
    [{ code: '28000' }, /check that the user exists, and check the file pg_hba/],
    [{ code: '3D000' }, /create it first/],
    [{ code: '53300' }, /too many connections/],
    [{ code: '57P03' }, /try again/],
    [{ code: 'ENOTFOUND' }, /its host name does not exist/],
    [new Error('timeout exceeded when trying to connect'), /no connection became available in time/],
    [new Error('The server does not support SSL connections'), /the TLS handshake failed/],
    [{ code: 'SELF_SIGNED_CERT_IN_CHAIN' }, /the TLS handshake failed/],
    [new Error('SASL: SCRAM-SERVER-FIRST-MESSAGE: client password must be a string'), /requires a password/],
    [{ code: 'toString' }, /the connection failed/],
  ];
  for (const [error, remedy] of cases) {
    const { message } = postgresFailure(error, 'x at db');
    t.match(message, remedy);
    t.match(message, /^The PostgreSQL database x at db cannot be used: [^.]+(?:\.conf)?\.$/);
  }
  t.end();
});

function thrownBy(act: () => unknown): DatabaseError {
  try {
    act();
  } catch (error) {
    if (error instanceof DatabaseError) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}
