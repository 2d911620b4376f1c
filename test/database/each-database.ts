import { randomBytes } from 'node:crypto';
import pg from 'pg';
import t, { type Test } from 'tap';

const server = process.env.POSTGRES_URL ?? 'postgres://postgres@127.0.0.1:5432';
const unavailable = await reasonWithoutPostgres();
if (unavailable !== null) {
  t.comment(`NO PostgreSQL AT ${new URL(server).host}: ${unavailable}. WHAT IS ABOUT PostgreSQL IS NOT TESTED.`);
}

/** Test options for a test of PostgreSQL only. */
export const postgresAlone = { skip: unavailable === null ? false : `no PostgreSQL: ${unavailable}` };

/** Runs a test on an empty SQLite database and on an empty PostgreSQL database; both are dropped after the test. */
export function onEachDatabase(title: string, body: (t: Test, url: string) => Promise<void>): void {
  t.test(`${title} (SQLite)`, (t) => body(t, `sqlite:${t.testdir()}/test.db`));
  t.test(`${title} (PostgreSQL)`, postgresAlone, async (t) => {
    await body(t, await createPostgresDatabase(t));
  });
}

/** Creates an empty database; returns its URL. It is dropped after all teardowns that the test registers later. */
export async function createPostgresDatabase(t: Test): Promise<string> {
  const name = `mg_test_${randomBytes(8).toString('hex')}`;
  await onServer(`create database ${name}`);
  t.teardown(() => onServer(`drop database if exists ${name} with (force)`));
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}

/** Runs a statement on the server's own database, outside the test databases. */
export async function onServer(statement: string): Promise<void> {
  // If there is no server, the connect fails at once. The timeout is long so that a slow server does not cause skipped
  // tests.
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
