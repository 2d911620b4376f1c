import type { Redis } from 'ioredis';
import type { Clock } from '../../gateway/ports.js';
import type { Environment } from '../../policy/key-format.js';
import type { InvalidationListener } from './invalidation-listener.js';
import type { RecordNames } from './record-names.js';
import { StoreState } from './store-state.js';

/** Who acknowledges. */
export interface GatewayIdentity {
  readonly instanceId: string;
  readonly environment: Environment;
  readonly host: string;
  /** ISO 8601. */
  readonly startedAt: string;
}

/** What a heartbeat is made of. */
export interface HeartbeatOptions {
  readonly redis: Redis;
  readonly listener: InvalidationListener;
  readonly names: RecordNames;
  readonly identity: GatewayIdentity;
  readonly clock: Clock;
  /** How long records are served that can no longer be known to be true. */
  readonly maxStaleMilliseconds: number;
}

const everyMilliseconds = 500;
/** Three beats: a process that was stopped for longer must not believe what it holds before it has caught up. */
const freshMilliseconds = 1_500;
const marginMilliseconds = 5_000;

/**
 * Knows up to which moment everything that is held is true, and acknowledges it. A beat reads the newest revision,
 * catches up with the notices, and then acknowledges that revision: a record is written before its revision is, so
 * whatever changed up to it has been dropped by then.
 */
export class Heartbeat {
  readonly #options: HeartbeatOptions;
  readonly #state = new StoreState();
  readonly #timer: NodeJS.Timeout;
  #running: Promise<void> | null = null;
  #next: Promise<void> | null = null;
  #knownTrue = { wall: -Infinity, monotonic: -Infinity };
  #answers = false;
  #closed = false;

  constructor(options: HeartbeatOptions) {
    this.#options = options;
    this.#timer = setInterval(() => {
      if (this.#running === null) void this.beat();
    }, everyMilliseconds).unref();
    options.redis.on('ready', () => void this.beat());
  }

  /** Milliseconds since everything held was known to be true. By a clock that was set back that was never. */
  get sinceKnownTrue(): number {
    const wall = this.#options.clock.now() - this.#knownTrue.wall;
    return wall < 0 ? Infinity : Math.max(wall, performance.now() - this.#knownTrue.monotonic);
  }

  /** Whether what is held can be believed without asking. */
  get fresh(): boolean {
    return (
      this.#options.listener.hearing && this.#state.generation !== null && this.sinceKnownTrue <= freshMilliseconds
    );
  }

  /** Whether Redis answered the newest beat. Where it did not, asking would cost a request time and bring nothing. */
  get answers(): boolean {
    return this.#answers;
  }

  /** The generation of the seeded records; null while it is not known that they are. */
  get generation(): string | null {
    return this.#state.generation;
  }

  /** Why nothing can be decided; null while it can, if only from what is held. */
  get reason(): string | null {
    if (this.#answers) return this.#state.reason;
    return this.sinceKnownTrue <= this.#options.maxStaleMilliseconds ? null : 'Redis does not answer';
  }

  /** Resolves after a beat that began when this was called, or later. */
  beat(): Promise<void> {
    if (this.#closed) return Promise.resolve();
    if (this.#running === null) {
      this.#running = this.#beat().finally(() => (this.#running = null));
      return this.#running;
    }
    this.#next ??= this.#running.then(() => {
      this.#next = null;
      return this.beat();
    });
    return this.#next;
  }

  /** Tries to be fresh again, in bounded time; where it is known that this cannot be, at once. */
  async catchUp(): Promise<void> {
    if (this.#answers && this.#options.listener.hearing) await this.beat();
  }

  /** Takes nothing for granted any more until the next beat. */
  doubt(): void {
    this.#state.doubt();
    void this.beat();
  }

  /** Stops, and takes the acknowledgement back so that nobody waits for this gateway. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    await this.#running;
    const { redis, names, identity } = this.#options;
    await redis.del(names.gateway(identity.instanceId)).catch(() => undefined);
  }

  async #beat(): Promise<void> {
    const { redis, listener, names, identity, clock, maxStaleMilliseconds } = this.#options;
    const [wall, monotonic, epoch] = [clock.now(), performance.now(), listener.epoch];
    let answered = false;
    try {
      const [meta, newest] = await Promise.all([redis.get(names.meta), redis.get(names.revision)]);
      answered = true;
      const revision = this.#state.accept(meta, newest);
      if (this.#state.reason !== null) return;
      await listener.catchUp();
      // It lives as long as this gateway might serve what it holds: whoever is not listed serves nothing old.
      const lifetime = maxStaleMilliseconds + freshMilliseconds + marginMilliseconds;
      await redis.set(names.gateway(identity.instanceId), JSON.stringify({ revision, ...identity }), 'PX', lifetime);
      if (listener.epoch === epoch) this.#knownTrue = { wall, monotonic };
    } catch {
      // The connections tell why; here it only counts that nothing new is known to be true.
    } finally {
      this.#answers = answered;
    }
  }
}
