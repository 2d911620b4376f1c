import { setTimeout as wait } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { reopen } from '../connection.js';
import { policyIn, sectionOf } from './server-memory.js';

/** Delay before reconnecting again, if the two connections lead to different servers even after a reconnect. */
const reconnectDelayMilliseconds = 1_000;
/** How often INFO is read again while it omits the run id. */
const infoEveryMilliseconds = 1_000;

/** What a server reports in INFO. */
export interface ServerFacts {
  /**
   * The `run_id`, which a server generates at start; null if the user lacks the right to call INFO, or INFO omits it.
   */
  readonly runId: string | null;
  /** Number of connected replicas when INFO was read. */
  readonly replicas: number;
  /** The eviction policy (`maxmemory-policy`); null if INFO omits it. */
  readonly policy: string | null;
}

/**
 * Checks that two connections lead to the same server, and identifies that server. After a reconnect, a host name could
 * resolve to another server. A gateway would then read records from one server and receive the invalidation messages of
 * another server, so it would miss changes.
 */
export class SameServer {
  readonly #commands: Redis;
  readonly #onSame: () => void;
  /** What the server of each connection reported in INFO. */
  readonly #servers = new Map<Redis, ServerFacts>();
  #differed = false;
  /**
   * How many times either connection was opened or closed. If this number has changed, an earlier INFO reply may be
   * from another server.
   */
  epoch = 0;

  /**
   * @param commands a connection that is never subscribed, so it can always call INFO
   * @param onSame called each time both connections are found to lead to one server
   */
  constructor(commands: Redis, other: Redis, onSame: () => void) {
    [this.#commands, this.#onSame] = [commands, onSame];
    this.#watch(commands, other);
    this.#watch(other, commands);
  }

  /** Whether both connections are ready and lead to one server, as far as INFO shows. */
  get holds(): boolean {
    return this.facts !== null;
  }

  /**
   * What INFO reports about the server of both connections; null if a connection is not ready, or they lead to
   * different servers.
   */
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
        .catch(() => stream.destroy()); // INFO failed: reconnect, then send INFO again
    });
  }

  /**
   * Compares the servers of both connections.
   * @param older the connection to reopen if the servers differ: the host name now resolves to the server of the newer
   * connection
   */
  #compare(older: Redis): void {
    if (this.#servers.size < 2) return;
    if (this.holds) {
      this.#differed = false;
      this.#onSame();
      if ([...this.#servers.values()].some(({ runId }) => runId === null)) void this.#reopenWithRunId();
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

  /**
   * Reads INFO until it shows the run id: an operator may later grant the Redis user the right to call INFO. Then
   * reopens both connections to identify their servers, because a subscribed connection cannot call INFO.
   */
  async #reopenWithRunId(): Promise<void> {
    const { epoch } = this;
    for (;;) {
      await wait(infoEveryMilliseconds, undefined, { ref: false });
      if (this.epoch !== epoch) return; // after a reconnect, INFO was read again
      const { runId } = await factsOf(this.#commands).catch(() => ({ runId: null }));
      if (this.epoch !== epoch) return;
      if (runId !== null) break;
    }
    for (const redis of this.#servers.keys()) reopen(redis);
  }
}

const replicasEveryMilliseconds = 5_000;

/**
 * The highest number of replicas that a server has had. A replica that is disconnected for a while still counts,
 * because it can still be promoted.
 */
export class ReplicaCount {
  readonly #redis: Redis;
  #most: number;
  #readAt = -Infinity;

  /** @param atLeast the lowest possible value of `most`: the number of replicas that the operator configured */
  constructor(redis: Redis, atLeast: number) {
    this.#redis = redis;
    this.#most = atLeast;
  }

  get most(): number {
    return this.#most;
  }

  /** Reads the number of replicas from INFO, at most every 5 seconds. Rejects if Redis does not reply. */
  async count(): Promise<void> {
    if (performance.now() - this.#readAt < replicasEveryMilliseconds) return;
    const { replicas } = await factsOf(this.#redis);
    this.#most = Math.max(this.#most, replicas);
    this.#readAt = performance.now();
  }
}

/** Reads the run id, the number of replicas and the eviction policy from INFO. Rejects if Redis does not reply. */
export async function factsOf(redis: Redis): Promise<ServerFacts> {
  const sections = ['server', 'replication', 'memory'].map((section) => sectionOf(redis, section));
  const [server = '', replication = '', memory = ''] = await Promise.all(sections);
  return {
    runId: /^run_id:(\w+)\r?$/m.exec(server)?.[1] ?? null,
    replicas: Number(/^connected_slaves:(\d{1,4})\r?$/m.exec(replication)?.[1] ?? 0),
    policy: policyIn(memory),
  };
}
