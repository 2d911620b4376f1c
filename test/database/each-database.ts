import { randomBytes } from 'node:crypto';
import pg from 'pg';
import t, { type Test } from 'tap';

const server = process.env.POSTGRES_URL ?? 'postgres://postgres@127.0.0.1:5432';
const unavailable = await reasonWithoutPostgres();
if (unavailable !== null) {
  t.comment(`NO PostgreSQL AT ${new URL(server).host}: ${unavailable}. WHAT IS ABOUT PostgreSQL IS NOT TESTED.`);
}

/** For a test that is about PostgreSQL alone. */
export const postgresAlone = { skip: unavailable === null ? false : `no PostgreSQL: ${unavailable}` };

/** Runs a test on an empty SQLite database and on an empty PostgreSQL database, which goes when the test ends. */
export function onEachDatabase(title: string, body: (t: Test, url: string) => Promise<void>): void {
  t.test(`${title} (SQLite)`, (t) => body(t, `sqlite:${t.testdir()}/test.db`));
  t.test(`${title} (PostgreSQL)`, postgresAlone, async (t) => {
    await body(t, await createPostgresDatabase(t));
  });
}

/** Makes an empty database, which is dropped after everything else that the test tears down. */
export async function createPostgresDatabase(t: Test): Promise<string> {
  const name = `mg_test_${randomBytes(8).toString('hex')}`;
  await onServer(`create database ${name}`);
  t.teardown(() => onServer(`drop database if exists ${name} with (force)`));
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}

/** Runs a statement outside the databases of the tests. */
export async function onServer(statement: string): Promise<void> {
  // No server refuses at once. One that is slow beside many tests is there all the same: nothing is skipped for that.
  const client = new pg.Client({ connectionString: server, connectionTimeoutMillis: 30_000 });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}

async function reasonWithoutPostgres(): Promise<string | null> {
  try {
    await onServer('select 1');
    return null;
  } catch (error) {
    return error instanceof Error ? error.message || error.name : 'unknown reason';
  }
}
