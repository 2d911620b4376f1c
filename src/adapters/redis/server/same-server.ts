import type { Redis } from 'ioredis';
import { policyIn, sectionOf } from './server-memory.js';

/** Reconnect delay when the two connections still lead to different servers after a first reconnect. */
const reconnectDelayMilliseconds = 1_000;

/** What a server reports in INFO. */
export interface ServerFacts {
  /** The `run_id`, which a server generates at start; null where INFO is forbidden or omits `run_id`. */
  readonly runId: string | null;
  /** Number of connected replicas at the time of INFO. */
  readonly replicas: number;
  /** The eviction policy (`maxmemory-policy`); null where INFO omits it. */
  readonly policy: string | null;
}

/**
 * Checks that two connections lead to the same server, and identifies that server.
 * After a reconnect, a host name may resolve to another server. The gateway would then read and acknowledge on one
 * server, and miss the notices of the other.
 */
export class SameServer {
  readonly #onSame: () => void;
  /** The server behind each connection, once INFO has returned. */
  readonly #servers = new Map<Redis, ServerFacts>();
  #differed = false;
  /**
   * Counts connects and disconnects of both connections. Facts learnt at another number may belong to another server.
   */
  epoch = 0;

  /** @param onSame called each time that both connections are known to lead to one server */
  constructor(one: Redis, other: Redis, onSame: () => void) {
    this.#onSame = onSame;
    this.#watch(one, other);
    this.#watch(other, one);
  }

  /** Whether both connections are ready and, as far as INFO shows, lead to one server. */
  get holds(): boolean {
    return this.facts !== null;
  }

  /** The server behind both connections; null while either is not ready or they differ. */
  get facts(): ServerFacts | null {
    const [one, other] = this.#servers.values();
    if (one === undefined || other === undefined) return null;
    if (one.runId !== null && other.runId !== null && one.runId !== other.runId) return null;
    const { policy } = one;
    return { runId: one.runId ?? other.runId, replicas: Math.max(one.replicas, other.replicas), policy };
  }

  #watch(redis: Redis, other: Redis): void {
    redis.on('close', () => {
      this.epoch += 1;
      this.#servers.delete(redis);
    });
    redis.on('ready', () => {
      this.epoch += 1;
      const { stream } = redis;
      factsOf(redis)
        .then((server) => {
          if (redis.stream !== stream || redis.status !== 'ready') return;
          this.#servers.set(redis, server);
          this.#compare(other);
        })
        .catch(() => stream.destroy()); // INFO itself failed: reconnect, which sends it again
    });
  }

  /**
   * @param older the connection to reopen if the two differ: the name resolves to the server of the newer connection
   */
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
      this.#differed ? reconnectDelayMilliseconds : 0,
    ).unref();
    this.#differed = true;
  }
}

const replicasEveryMilliseconds = 5_000;

/**
 * The highest number of replicas seen behind a server. A replica that is disconnected for a while can still be
 * promoted.
 */
export class ReplicaCount {
  readonly #redis: Redis;
  #most: number;
  #readAt = -Infinity;

  /** @param atLeast the number of replicas that the operator configured */
  constructor(redis: Redis, atLeast: number) {
    this.#redis = redis;
    this.#most = atLeast;
  }

  get most(): number {
    return this.#most;
  }

  /** Reads the number of replicas again, at most every 5 seconds. Rejects if Redis does not reply. */
  async count(): Promise<void> {
    if (performance.now() - this.#readAt < replicasEveryMilliseconds) return;
    const { replicas } = await factsOf(this.#redis);
    this.#most = Math.max(this.#most, replicas);
    this.#readAt = performance.now();
  }
}

/** Reads the facts of a server from INFO. Rejects if Redis does not reply. */
export async function factsOf(redis: Redis): Promise<ServerFacts> {
  const sections = ['server', 'replication', 'memory'].map((section) => sectionOf(redis, section));
  const [server = '', replication = '', memory = ''] = await Promise.all(sections);
  return {
    runId: /^run_id:(\w+)\r?$/m.exec(server)?.[1] ?? null,
    replicas: Number(/^connected_slaves:(\d{1,4})\r?$/m.exec(replication)?.[1] ?? 0),
    policy: policyIn(memory),
  };
}
