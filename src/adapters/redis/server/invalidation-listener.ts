import type { Redis } from 'ioredis';

/** What the listener tells of. */
export interface InvalidationEvents {
  /** These records may have changed: by whomever, by expiry or by eviction. */
  readonly onChanged: (names: readonly string[]) => void;
  /** Everything has changed: the store was flushed. */
  readonly onEverythingChanged: () => void;
  /** Listening has begun: anything may have changed before. */
  readonly onListening: () => void;
  /** Nothing can be heard any more. */
  readonly onDeaf: () => void;
}

const channel = '__redis__:invalidate';
/** A right that is missing is not there at once. */
const refusedMilliseconds = 1_000;

/**
 * Hears of every change of the records (server-assisted client-side caching, CLIENT TRACKING in broadcasting mode).
 * The notices are redirected to the very connection that asked for them, so that tracking and hearing end together:
 * with two connections, tracking can be dead while the subscriber lives on and hears nothing.
 */
export class InvalidationListener {
  readonly #redis: Redis;
  #hearing = false;
  #epoch = 0;

  constructor(redis: Redis, prefixes: readonly string[], events: InvalidationEvents) {
    this.#redis = redis;
    redis.on('ready', () => {
      const { stream } = redis;
      this.#listen(prefixes, events).catch((error: unknown) => {
        // Not allowed to track, or gone again: a new connection is a new attempt.
        const isRefused = error instanceof Error && error.name === 'ReplyError';
        setTimeout(
          () => {
            if (redis.stream === stream && redis.status === 'ready') redis.disconnect(true);
          },
          isRefused ? refusedMilliseconds : 0,
        ).unref();
      });
    });
    redis.on('close', () => {
      if (!this.#hearing) return;
      this.#hearing = false;
      events.onDeaf();
    });
    redis.on('messageBuffer', (_channel: Buffer, names: Buffer[] | null) => {
      if (names === null) events.onEverythingChanged();
      else events.onChanged(names.map((name) => name.toString('utf8')));
    });
  }

  get hearing(): boolean {
    return this.#hearing;
  }

  /** Counts the times that listening began: between two looks at the same number nothing was missed. */
  get epoch(): number {
    return this.#epoch;
  }

  /**
   * Resolves when every notice has been heard that Redis had sent when it got this question: notices and the answer
   * come over one connection, in order.
   */
  async catchUp(): Promise<void> {
    if (!this.#hearing) throw new Error('nothing can be heard');
    await this.#redis.ping();
  }

  async #listen(prefixes: readonly string[], events: InvalidationEvents): Promise<void> {
    const id = await this.#redis.client('ID');
    const wanted = prefixes.flatMap((prefix) => ['PREFIX', prefix]);
    await this.#redis.call('CLIENT', 'TRACKING', 'ON', 'REDIRECT', String(id), 'BCAST', ...wanted);
    await this.#redis.subscribe(channel);
    this.#hearing = true;
    this.#epoch += 1;
    events.onListening();
  }
}
