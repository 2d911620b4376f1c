import pg from 'pg';
import { requireOwnServerProcess } from '../own-server-process.js';
import type { DatabaseSession } from './database-session.js';

const lockName = 'merchant-gateway projector';
const channel = 'merchant_gateway_changes';
const timeoutMilliseconds = 2_000;
const firstPauseMilliseconds = 500;
const longestPauseMilliseconds = 30_000;

/** Has a server release the lock of a machine that has vanished: otherwise it keeps the connection for two hours. */
const noticeVanishedClient =
  'set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3';

/** The lock of a PostgreSQL database, an advisory one, on a connection that otherwise only tells and hears of changes. */
export class PostgresSession implements DatabaseSession {
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
