import pg from 'pg';
import { requireOwnServerProcess } from './postgres.js';
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import Libsql from 'libsql';
import { createReadableByNobodyElse } from './sqlite.js';
import type { DatabaseOptions } from './open-database.js';

/**
 * What lasts exactly as long as a process uses a database: an exclusive lock, of which there is one in a database. Its server, or for
 * SQLite the kernel, releases it when the process ends, however it ends. So a process that gets it knows that whoever had
 * it before has ended, or has lost its connection.
 */
export interface DatabaseSession {
  /** Takes the lock where it is free, and makes sure that it is still held. False where it is not, or that is unknown. */
  hold(): Promise<boolean>;
  /** Tells the other processes with such a session that something was changed. It may be lost, so they look now and then. */
  tell(): void;
  /** Gives the lock back. */
  release(): Promise<void>;
  /** Ends the session, and the lock with it. */
  close(): Promise<void>;
}

const lockName = 'merchant-gateway projector';
const channel = 'merchant_gateway_changes';
const timeoutMilliseconds = 2_000;
const firstPauseMilliseconds = 500;
const longestPauseMilliseconds = 30_000;

/** Has a server release the lock of a machine that has vanished: otherwise it keeps the connection for two hours. */
const noticeVanishedClient =
  'set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3';

/** The lock of a PostgreSQL database, an advisory one, on a connection that otherwise only tells and hears of changes. */
class PostgresSession implements DatabaseSession {
  readonly #url: string;
  readonly #onTold: () => void;
  #client: pg.Client | null = null;
  #holds = false;
  #failures = 0;
  #failedAt = -Infinity;
  #isClosed = false;

  constructor(url: string, onTold: () => void) {
    this.#url = url;
    this.#onTold = onTold;
  }

  async hold(): Promise<boolean> {
    if (this.#client === null && performance.now() - this.#failedAt < this.#pause) return false;
    try {
      const client = (this.#client ??= await this.#connect());
      // The lock lasts as long as the connection, so its reply proves that it is still held.
      const { rows } = await client.query<{ taken: boolean }>(
        this.#holds ? 'select true as taken' : 'select pg_try_advisory_lock(hashtextextended($1, 0)) as taken',
        this.#holds ? [] : [lockName],
      );
      this.#failures = 0;
      // Another client, or none: it has broken meanwhile.
      return (this.#holds = this.#client === client && rows[0]?.taken === true);
    } catch {
      this.#failures += 1;
      this.#failedAt = performance.now();
      void this.#drop(this.#client);
      return false;
    }
  }

  tell(): void {
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
      void this.#drop(client); // it may still have the lock
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
        if (processId !== ownId) this.#onTold();
      });
      await client.query(`${noticeVanishedClient}; listen ${channel}`);
      return client;
    } catch (error) {
      await client.end().catch(() => undefined);
      throw error;
    }
  }

  /** @returns what settles when it has ended; a server that has vanished takes long to say so */
  #drop(client: pg.Client | null): Promise<void> {
    if (client === null || client !== this.#client) return Promise.resolve();
    this.#client = null;
    this.#holds = false;
    return client.end().catch(() => undefined);
  }
}

/**
 * The lock of an SQLite database: an empty database beside it that is in an exclusive transaction. The kernel ends that
 * with the process. The database itself cannot be locked so, for others read it and write to it.
 */
class SqliteSession implements DatabaseSession {
  readonly #location: string;
  #held: { readonly connection: Libsql.Database; readonly inode: bigint } | null = null;

  /** @param path of the database */
  constructor(path: string) {
    this.#location = `${resolve(path)}.lock`;
  }

  hold(): Promise<boolean> {
    // A file that was removed and made anew can be locked twice.
    if (this.#held !== null && this.#held.inode !== inodeOf(this.#location)) this.#letGo();
    this.#held ??= this.#take();
    return Promise.resolve(this.#held !== null);
  }

  tell(): void {
    // There is one process as a rule; another one looks now and then.
  }

  release(): Promise<void> {
    this.#letGo();
    return Promise.resolve();
  }

  close(): Promise<void> {
    return this.release();
  }

  #take(): { connection: Libsql.Database; inode: bigint } | null {
    let connection: Libsql.Database | undefined;
    try {
      // Only where there is none: when a process closes a file, the kernel ends all locks that the process has on it.
      if (inodeOf(this.#location) === null) createReadableByNobodyElse(this.#location);
      const inode = inodeOf(this.#location);
      connection = new Libsql(this.#location);
      connection.exec('pragma busy_timeout = 0');
      connection.exec('pragma journal_mode = memory'); // nothing is written, so no other file is needed
      connection.exec('begin exclusive');
      if (inode !== null && inode === inodeOf(this.#location)) return { connection, inode };
    } catch {
      // Another process has it, or the file cannot be used: then there is the lease alone.
    }
    connection?.close();
    return null;
  }

  #letGo(): void {
    this.#held?.connection.close();
    this.#held = null;
  }
}

function inodeOf(location: string): bigint | null {
  return statSync(location, { bigint: true, throwIfNoEntry: false })?.ino ?? null;
}

/** A session that never has the lock: a database in memory has no other process. */
const withoutLock: DatabaseSession = {
  hold: () => Promise.resolve(false),
  tell: () => undefined,
  release: () => Promise.resolve(),
  close: () => Promise.resolve(),
};

/**
 * Opens a session of a database that `openDatabase` has opened. It connects when it is first needed.
 * @param onTold called when another process has told of a change
 */
export function openSession(
  { url }: Pick<DatabaseOptions, 'url'>,
  onTold: () => void = () => undefined,
): DatabaseSession {
  const [, path = null] = /^sqlite:(.*)$/is.exec(url) ?? [];
  if (path === null) return new PostgresSession(url, onTold);
  return path === ':memory:' ? withoutLock : new SqliteSession(path);
}
