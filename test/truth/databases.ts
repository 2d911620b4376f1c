import { randomBytes } from 'node:crypto';
import { copyFile, rm } from 'node:fs/promises';
import path from 'node:path';
import Libsql from 'libsql';
import pg from 'pg';
import type { Teardown } from '../adapters/redis-server.js';
import { Relay } from './relay.js';

/** Start and end time of a copy. */
interface DatabaseCopy {
  readonly copyBegun: number;
  readonly copyEnded: number;
}

/** The registries' database. It can be copied while the registries run, and restored while they are stopped. */
export interface Database {
  /** The value of `registry.database.url`. */
  readonly url: string;
  /** The relay in front of the server; null for SQLite. */
  readonly relay: Relay | null;
  copy(): Promise<DatabaseCopy>;
  /** Restores the last copy. */
  putBack(): Promise<void>;
  /** The last copy; null without a copy. */
  readonly copied: DatabaseCopy | null;
}

/** An SQLite file, for one registry. */
export function sqliteIn(directory: string): Database {
  const file = path.join(directory, 'registry.db');
  const copy = `${file}.copy`;
  let copied: DatabaseCopy | null = null;
  return {
    get copied() {
      return copied;
    },
    url: `sqlite:${file}`,
    relay: null,
    async copy() {
      await rm(copy, { force: true });
      const copyBegun = performance.now();
      const database = new Libsql(file, { timeout: 5000 });
      database.exec(`vacuum into '${copy}'`);
      database.close();
      return (copied = { copyBegun, copyEnded: performance.now() });
    },
    async putBack() {
      for (const suffix of ['', '-wal', '-shm']) await rm(file + suffix, { force: true });
      await copyFile(copy, file);
    },
  };
}

/** An empty database on the PostgreSQL server in POSTGRES_URL, for several registries. */
export async function createPostgres(t: Teardown): Promise<Database> {
  const server = new URL(process.env.POSTGRES_URL ?? 'postgres://postgres@127.0.0.1:5432');
  const name = `mg_soak_${randomBytes(8).toString('hex')}`;
  const run = async (...statements: string[]): Promise<void> => {
    const client = new pg.Client({ connectionString: server.href, connectionTimeoutMillis: 30_000 });
    await client.connect();
    try {
      for (const statement of statements) await client.query(statement);
    } finally {
      await client.end();
    }
  };
  const drop = (which: string): string => `drop database if exists ${which} with (force)`;
  await run(`create database ${name}`);
  t.teardown(() => run(drop(name), drop(`${name}_copy`)));
  const relay = await Relay.open(t, () => Number(server.port || 5432));
  const url = new URL(server);
  [url.hostname, url.port, url.pathname] = ['127.0.0.1', String(relay.port), `/${name}`];
  let copied: DatabaseCopy | null = null;
  return {
    get copied() {
      return copied;
    },
    url: url.href,
    relay,
    async copy() {
      // PostgreSQL copies a template database only if it has no connections. The relay is cut, because the registries
      // would otherwise reconnect at once.
      const copyBegun = performance.now();
      relay.set('cut');
      try {
        await run(
          `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${name}'`,
          drop(`${name}_copy`),
          `create database ${name}_copy template ${name}`,
        );
      } finally {
        relay.set('open');
      }
      return (copied = { copyBegun, copyEnded: performance.now() });
    },
    putBack: () => run(drop(name), `create database ${name} template ${name}_copy`),
  };
}
