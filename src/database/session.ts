import pg from 'pg';
import { requireOwnServerProcess } from './postgres.js';
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import Libsql from 'libsql';
import { createPrivateFile } from './sqlite.js';
import type { DatabaseOptions } from './open-database.js';

/**
 * A session that can hold an exclusive lock, and that notifies other processes of changes. The lock only shows that its
 * holder is alive: other processes can use the database meanwhile. The lock is released even after a crash: by
 * PostgreSQL, or for SQLite by the kernel. So a process that gets the lock knows that the previous holder has released
 * the lock, ended, or lost its connection.
 */
export interface DatabaseSession {
  /**
   * Acquires the lock, or checks that this process still holds it. Resolves to false if the process does not hold the
   * lock, or cannot be sure that it does.
   */
  hold(): Promise<boolean>;
  /** Notifies other processes of a change. A notification can be lost, so processes also poll. */
  notify(): void;
  /** Releases the lock. */
  release(): Promise<void>;
  /** Releases the lock and ends the session. */
  close(): Promise<void>;
}

const lockName = 'merchant-gateway projector';
const channel = 'merchant_gateway_changes';
const timeoutMilliseconds = 2_000;
const firstPauseMilliseconds = 500;
const longestPauseMilliseconds = 30_000;

/**
 * SQL that enables TCP keepalives on the server, so that the server soon releases the lock of a machine that vanished.
 * By default the server keeps such a connection for two hours.
 */
const detectVanishedClient =
  'set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3';

/**
 * The lock on PostgreSQL: an advisory lock. The connection that holds it also sends and receives change notifications.
 */
class PostgresSession implements DatabaseSession {
  readonly #url: string;
  readonly #onNotified: () => void;
  #client: pg.Client | null = null;
  #holds = false;
  /** The call of `hold` in progress. Simultaneous callers share it; otherwise each one would open a connection. */
  #holding: Promise<boolean> | null = null;
  #failures = 0;
  #failedAt = -Infinity;
  #isClosed = false;

  constructor(url: string, onNotified: () => void) {
    this.#url = url;
    this.#onNotified = onNotified;
  }

  hold(): Promise<boolean> {
    return (this.#holding ??= this.#hold().finally(() => (this.#holding = null)));
  }

  async #hold(): Promise<boolean> {
    if (this.#client === null && performance.now() - this.#failedAt < this.#pause) return false;
    try {
      const client = (this.#client ??= await this.#connect());
      // The lock lasts as long as its connection. So if this process already holds the lock, a reply to any query
      // proves that it still does.
      const { rows } = await client.query<{ taken: boolean }>(
        this.#holds ? 'select true as taken' : 'select pg_try_advisory_lock(hashtextextended($1, 0)) as taken',
        this.#holds ? [] : [lockName],
      );
      this.#failures = 0;
      // The connection could have broken during the query: `#client` is then null or a newer connection.
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
    // Wait for a `hold` in progress. Otherwise its reply would claim the lock that this method has released.
    while (this.#holding !== null) await this.#holding;
    if (!this.#holds) return;
    this.#holds = false;
    const client = this.#client;
    try {
      await client?.query('select pg_advisory_unlock(hashtextextended($1, 0))', [lockName]);
    } catch {
      void this.#drop(client); // the unlock may have failed; closing the connection releases the lock
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
    this.#requireOpen();
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
      this.#requireOpen(); // `close` cannot close a connection that is still being opened
      return client;
    } catch (error) {
      await client.end().catch(() => undefined);
      throw error;
    }
  }

  #requireOpen(): void {
    if (this.#isClosed) throw new Error('the session is closed');
  }

  /**
   * Closes the connection, which also releases the lock. Resolves when the connection is closed, which takes long if
   * the server has vanished.
   */
  #drop(client: pg.Client | null): Promise<void> {
    if (client === null || client !== this.#client) return Promise.resolve();
    this.#client = null;
    this.#holds = false;
    return client.end().catch(() => undefined);
  }
}

/**
 * The lock on SQLite: an exclusive transaction on a separate empty database. The kernel releases it when the process
 * ends. The main database cannot be locked, because other processes read and write it.
 */
class SqliteSession implements DatabaseSession {
  readonly #location: string;
  #held: { readonly connection: Libsql.Database; readonly inode: bigint } | null = null;

  /** @param path path of the main database */
  constructor(path: string) {
    this.#location = `${resolve(path)}.lock`;
  }

  hold(): Promise<boolean> {
    // Release the lock if the lock file was replaced, because another process can hold a lock on the new file.
    if (this.#held !== null && this.#held.inode !== inodeOf(this.#location)) this.#unlock();
    this.#held ??= this.#take();
    return Promise.resolve(this.#held !== null);
  }

  notify(): void {
    // Does nothing: usually only one process uses the file, and any others poll for changes.
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
      // Create the file only if it is missing, because `createPrivateFile` also closes the file. When a process closes
      // a file, the kernel releases all locks that the process has on the file.
      if (inodeOf(this.#location) === null) createPrivateFile(this.#location);
      const inode = inodeOf(this.#location);
      connection = new Libsql(this.#location);
      connection.exec('pragma busy_timeout = 0');
      connection.exec('pragma journal_mode = memory'); // no journal file is needed, because nothing is written
      connection.exec('begin exclusive');
      if (inode !== null && inode === inodeOf(this.#location)) return { connection, inode };
    } catch {
      // Another process has the lock, or the file is unusable. Ignore the error: even without the lock, only one
      // process writes records to the store, namely the process that the lease (a database row) names.
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

/**
 * The session of an in-memory database, which only this process uses. So there is no lock, and `hold` always resolves
 * to false.
 */
const withoutLock: DatabaseSession = {
  hold: () => Promise.resolve(false),
  notify: () => undefined,
  release: () => Promise.resolve(),
  close: () => Promise.resolve(),
};

/**
 * Opens a session for a database that `openDatabase` has opened. The session connects on first use.
 * @param onNotified called when another process notifies this process of a change; never called on SQLite
 */
export function openSession(
  { url }: Pick<DatabaseOptions, 'url'>,
  onNotified: () => void = () => undefined,
): DatabaseSession {
  const [, path = null] = /^sqlite:(.*)$/is.exec(url) ?? [];
  if (path === null) return new PostgresSession(url, onNotified);
  return path === ':memory:' ? withoutLock : new SqliteSession(path);
}
