import type { Redis } from 'ioredis';

/** How long a name that leads here and there is left alone before it is tried again. */
const againMilliseconds = 1_000;

/**
 * Sees to it that two connections lead to the same server. A name may lead to another one than before when one of them is
 * opened anew: records would be read and changes acknowledged there, and never be heard of here.
 */
export class SameServer {
  readonly #onSame: () => void;
  /** What server each leads to, once it has told; null: it does not say. */
  readonly #servers = new Map<Redis, string | null>();
  #differed = false;

  /** @param onSame told when it has come to be known */
  constructor(one: Redis, other: Redis, onSame: () => void) {
    this.#onSame = onSame;
    this.#watch(one, other);
    this.#watch(other, one);
  }

  /** Whether both are open and, as far as can be told, lead to one server. */
  get holds(): boolean {
    const [one, other] = this.#servers.values();
    return one !== undefined && other !== undefined && (one === null || other === null || one === other);
  }

  #watch(redis: Redis, other: Redis): void {
    redis.on('close', () => this.#servers.delete(redis));
    redis.on('ready', () => {
      const { stream } = redis;
      runIdOf(redis)
        .then((server) => {
          if (redis.stream !== stream || redis.status !== 'ready') return;
          this.#servers.set(redis, server);
          this.#compare(other);
        })
        .catch(() => stream.destroy()); // no answer is not one that it does not say: a new connection asks again
    });
  }

  /** @param older which is opened anew where the two differ: the name leads to where the newer one is */
  #compare(older: Redis): void {
    if (this.#servers.size < 2) return;
    if (this.holds) {
      this.#differed = false;
      this.#onSame();
      return;
    }
    const { stream } = older;
    setTimeout(
      () => {
        stream.destroy();
      },
      this.#differed ? againMilliseconds : 0,
    ).unref();
    this.#differed = true;
  }
}

/** The name that a server gave itself when it started; null where it may not be asked, or does not say. Rejects for no answer. */
async function runIdOf(redis: Redis): Promise<string | null> {
  try {
    return /^run_id:(\w+)\r?$/m.exec(await redis.info('server'))?.[1] ?? null;
  } catch (error) {
    if (error instanceof Error && error.name === 'ReplyError') return null;
    throw error;
  }
}
