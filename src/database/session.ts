import pg from 'pg';
import { requireOwnServerProcess } from './postgres.js';
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import Libsql from 'libsql';
import { createPrivateFile } from './sqlite.js';
import type { DatabaseOptions } from './open-database.js';

/**
 * An exclusive lock that lasts as long as a process uses a database. PostgreSQL, or the kernel for SQLite, releases it
 * however the process ends. So a process that acquires it knows that the previous holder has ended or lost its
 * connection.
 */
export interface DatabaseSession {
  /** Acquires the lock, or checks that it is still held. False when it is not, or when that is unknown. */
  hold(): Promise<boolean>;
  /** Notifies the other sessions of a change. Notifications can be lost, so sessions also poll. */
  notify(): void;
  /** Releases the lock. */
  release(): Promise<void>;
  /** Ends the session and releases the lock. */
  close(): Promise<void>;
}

const lockName = 'merchant-gateway projector';
const channel = 'merchant_gateway_changes';
const timeoutMilliseconds = 2_000;
const firstPauseMilliseconds = 500;
const longestPauseMilliseconds = 30_000;

/** Makes the server release the lock of a vanished machine. By default it keeps the connection for two hours. */
const detectVanishedClient =
  'set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3';

/** An advisory lock of PostgreSQL. Its connection otherwise only sends and receives change notifications. */
class PostgresSession implements DatabaseSession {
  readonly #url: string;
  readonly #onNotified: () => void;
  #client: pg.Client | null = null;
  #holds = false;
  #failures = 0;
  #failedAt = -Infinity;
  #isClosed = false;

  constructor(url: string, onNotified: () => void) {
    this.#url = url;
    this.#onNotified = onNotified;
  }

  async hold(): Promise<boolean> {
    if (this.#client === null && performance.now() - this.#failedAt < this.#pause) return false;
    try {
      const client = (this.#client ??= await this.#connect());
      // The lock lasts as long as the connection, so a reply proves that it is still held.
      const { rows } = await client.query<{ taken: boolean }>(
        this.#holds ? 'select true as taken' : 'select pg_try_advisory_lock(hashtextextended($1, 0)) as taken',
        this.#holds ? [] : [lockName],
      );
      this.#failures = 0;
      // `#client` differs when the connection broke during the query.
      return (this.#holds = this.#client === client && rows[0]?.taken === true);
    } catch {
      this.#failures += 1;
      this.#failedAt = performance.now();
      void this.#drop(this.#client);
      return false;
    }
  }

  notify(): void {
    const client = this.#client;
    client?.query(`notify ${channel}`).catch(() => this.#drop(client));
  }

  async release(): Promise<void> {
    if (!this.#holds) return;
    this.#holds = false;
    const client = this.#client;
    try {
      await client?.query('select pg_advisory_unlock(hashtextextended($1, 0))', [lockName]);
    } catch {
      void this.#drop(client); // the server may still hold the lock
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#drop(this.#client);
  }

  get #pause(): number {
    return this.#failures === 0 ? 0 : Math.min(firstPauseMilliseconds * 2 ** this.#failures, longestPauseMilliseconds);
  }

  async #connect(): Promise<pg.Client> {
    if (this.#isClosed) throw new Error('the session is closed');
    const options = {
      connectionString: this.#url,
      application_name: 'merchant-gateway lock',
      connectionTimeoutMillis: timeoutMilliseconds,
      query_timeout: timeoutMilliseconds,
      keepAlive: true,
    };
    const client = new pg.Client(options);
    for (const event of ['error', 'end'] as const) client.on(event, () => void this.#drop(client));
    try {
      await client.connect();
      const ownId = await requireOwnServerProcess(client, options);
      client.on('notification', ({ processId }) => {
        if (processId !== ownId) this.#onNotified();
      });
      await client.query(`${detectVanishedClient}; listen ${channel}`);
      return client;
    } catch (error) {
      await client.end().catch(() => undefined);
      throw error;
    }
  }

  /** Resolves when the connection has ended, which takes long if the server has vanished. */
  #drop(client: pg.Client | null): Promise<void> {
    if (client === null || client !== this.#client) return Promise.resolve();
    this.#client = null;
    this.#holds = false;
    return client.end().catch(() => undefined);
  }
}

/**
 * The lock of an SQLite database: an exclusive transaction on an empty database next to it. The kernel ends the
 * transaction with the process. The main database cannot be locked, because other processes read and write it.
 */
class SqliteSession implements DatabaseSession {
  readonly #location: string;
  #held: { readonly connection: Libsql.Database; readonly inode: bigint } | null = null;

  /** @param path of the database */
  constructor(path: string) {
    this.#location = `${resolve(path)}.lock`;
  }

  hold(): Promise<boolean> {
    // Two processes can hold the lock if its file was removed and recreated.
    if (this.#held !== null && this.#held.inode !== inodeOf(this.#location)) this.#unlock();
    this.#held ??= this.#take();
    return Promise.resolve(this.#held !== null);
  }

  notify(): void {
    // There is usually one process; another one polls.
  }

  release(): Promise<void> {
    this.#unlock();
    return Promise.resolve();
  }

  close(): Promise<void> {
    return this.release();
  }

  #take(): { connection: Libsql.Database; inode: bigint } | null {
    let connection: Libsql.Database | undefined;
    try {
      // Only a missing file: when a process closes a file, the kernel releases all locks of the process on it.
      if (inodeOf(this.#location) === null) createPrivateFile(this.#location);
      const inode = inodeOf(this.#location);
      connection = new Libsql(this.#location);
      connection.exec('pragma busy_timeout = 0');
      connection.exec('pragma journal_mode = memory'); // nothing is written, so no other file is needed
      connection.exec('begin exclusive');
      if (inode !== null && inode === inodeOf(this.#location)) return { connection, inode };
    } catch {
      // Another process holds the lock, or the file is unusable: only the lease remains.
    }
    connection?.close();
    return null;
  }

  #unlock(): void {
    this.#held?.connection.close();
    this.#held = null;
  }
}

function inodeOf(location: string): bigint | null {
  return statSync(location, { bigint: true, throwIfNoEntry: false })?.ino ?? null;
}

/** Never has the lock: no other process uses a database in memory. */
const withoutLock: DatabaseSession = {
  hold: () => Promise.resolve(false),
  notify: () => undefined,
  release: () => Promise.resolve(),
  close: () => Promise.resolve(),
};

/**
 * Opens a session of a database that `openDatabase` has opened. It connects on first use.
 * @param onNotified called when another process reports a change
 */
export function openSession(
  { url }: Pick<DatabaseOptions, 'url'>,
  onNotified: () => void = () => undefined,
): DatabaseSession {
  const [, path = null] = /^sqlite:(.*)$/is.exec(url) ?? [];
  if (path === null) return new PostgresSession(url, onNotified);
  return path === ':memory:' ? withoutLock : new SqliteSession(path);
}
