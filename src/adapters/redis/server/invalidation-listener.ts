import type { Redis } from 'ioredis';

/** Events of the connection on which Redis reports changed keys (CLIENT TRACKING). */
export interface InvalidationEvents {
  /** Called when the values of these Redis keys may have changed: any client wrote, or keys expired or were evicted. */
  readonly onChanged: (names: readonly string[]) => void;
  /** Called when any record may have changed: Redis sent a null message, as after FLUSHALL. */
  readonly onEverythingChanged: () => void;
  /** Called when tracking has been enabled. Changes before this event were not reported. */
  readonly onListening: () => void;
  /** Called when the connection has closed. Invalidation messages then no longer arrive. */
  readonly onDisconnected: () => void;
}

const channel = '__redis__:invalidate';
/** Delay of a retry after an error reply. The cause usually lasts for a while, for example a missing ACL right. */
const refusedMilliseconds = 1_000;

/**
 * Receives an invalidation message for every change of a Redis key with a tracked prefix (CLIENT TRACKING in
 * broadcasting mode). Tracking and messages use the same connection. With separate connections, tracking could end
 * while the connection for messages stays open and receives nothing.
 */
export class InvalidationListener {
  readonly #redis: Redis;
  /** Whether tracking is on. If so, Redis reports every change. */
  connected = false;
  /** How many times tracking was enabled. No message was missed if this number is unchanged and `connected` is true. */
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
   * Sends a PING. Resolves when all invalidation messages that preceded the reply have been handled. Messages and
   * replies share one connection, so they arrive in order.
   * @throws Error if tracking is off, or the PING fails
   */
  async catchUp(): Promise<void> {
    if (!this.connected) throw new Error('Redis sends no invalidation messages on this connection');
    await this.#redis.ping().catch((error: unknown) => {
      // A server that cannot save refuses PING with MISCONF. That reply also follows the messages, so it suffices.
      if (!(error instanceof Error && error.message.startsWith('MISCONF'))) throw error;
    });
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
