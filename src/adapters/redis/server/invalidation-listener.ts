import type { Redis } from 'ioredis';

/** Events of an invalidation listener. */
export interface InvalidationEvents {
  /** These records may have changed: by any client's write, by expiry or by eviction. */
  readonly onChanged: (names: readonly string[]) => void;
  /** Any record may have changed: Redis sent a null notice, as after FLUSHALL. */
  readonly onEverythingChanged: () => void;
  /** Tracking is on. Changes made before this event were not reported. */
  readonly onListening: () => void;
  /** The connection closed: invalidation notices no longer arrive. */
  readonly onDisconnected: () => void;
}

const channel = '__redis__:invalidate';
/** Retry delay after an error reply: a missing ACL right does not appear at once. */
const refusedMilliseconds = 1_000;

/**
 * Receives an invalidation notice for every change of the tracked records (CLIENT TRACKING in broadcasting mode).
 * The notices are redirected to the connection that enabled tracking, so that tracking and subscription end together.
 * With two connections, tracking could end while the subscriber stays connected and receives nothing.
 */
export class InvalidationListener {
  readonly #redis: Redis;
  /** Whether tracking is on, so that every change is reported. */
  connected = false;
  /** Number of times that tracking was enabled. While this number is unchanged, no notice was missed. */
  epoch = 0;

  constructor(redis: Redis, prefixes: readonly string[], events: InvalidationEvents) {
    this.#redis = redis;
    redis.on('ready', () => {
      const { stream } = redis;
      this.#listen(prefixes, events).catch((error: unknown) => {
        // Redis refused CLIENT TRACKING, or the connection closed. Reconnect to try again.
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
      if (!this.connected) return;
      this.connected = false;
      events.onDisconnected();
    });
    redis.on('messageBuffer', (_channel: Buffer, names: Buffer[] | null) => {
      if (names === null) events.onEverythingChanged();
      else events.onChanged(names.map((name) => name.toString('utf8')));
    });
  }

  /**
   * Resolves once every notice that Redis sent before it received this PING has been handled: notices and replies share
   * one connection and stay in order.
   * @throws Error while tracking is off, or when the PING fails
   */
  async catchUp(): Promise<void> {
    if (!this.connected) throw new Error('Redis sends no invalidation notices on this connection');
    await this.#redis.ping();
  }

  async #listen(prefixes: readonly string[], events: InvalidationEvents): Promise<void> {
    const id = await this.#redis.client('ID');
    const wanted = prefixes.flatMap((prefix) => ['PREFIX', prefix]);
    await this.#redis.call('CLIENT', 'TRACKING', 'ON', 'REDIRECT', String(id), 'BCAST', ...wanted);
    await this.#redis.subscribe(channel);
    this.connected = true;
    this.epoch += 1;
    events.onListening();
  }
}
