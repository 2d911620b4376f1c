import type { Redis } from 'ioredis';
import { policyIn, sectionOf } from './server-memory.js';

/** How long a name that leads here and there is left alone before it is tried again. */
const againMilliseconds = 1_000;

/** What a server says of itself. */
export interface ServerFacts {
  /** The name that it gave itself when it started; null where it may not be asked, or does not say. */
  readonly runId: string | null;
  /** How many replicas it had when it was asked. */
  readonly replicas: number;
  /** What it does when it is full (`maxmemory-policy`); null where it does not say. */
  readonly policy: string | null;
}

/**
 * Sees to it that two connections lead to the same server, and knows which. A name may lead to another one than before when one
 * of them is opened anew: records would be read and changes acknowledged there, and never be heard of here.
 */
export class SameServer {
  readonly #onSame: () => void;
  /** What server each leads to, once it has told. */
  readonly #servers = new Map<Redis, ServerFacts>();
  #differed = false;
  #epoch = 0;

  /** @param onSame told when it has come to be known */
  constructor(one: Redis, other: Redis, onSame: () => void) {
    this.#onSame = onSame;
    this.#watch(one, other);
    this.#watch(other, one);
  }

  /** Whether both are open and, as far as can be told, lead to one server. */
  get holds(): boolean {
    return this.facts !== null;
  }

  /** The server that both lead to; null while they do not. */
  get facts(): ServerFacts | null {
    const [one, other] = this.#servers.values();
    if (one === undefined || other === undefined) return null;
    if (one.runId !== null && other.runId !== null && one.runId !== other.runId) return null;
    const { policy } = one;
    return { runId: one.runId ?? other.runId, replicas: Math.max(one.replicas, other.replicas), policy };
  }

  /** Counts the connections of both: what was known of a server at another number may have been another server's. */
  get epoch(): number {
    return this.#epoch;
  }

  #watch(redis: Redis, other: Redis): void {
    redis.on('close', () => {
      this.#epoch += 1;
      this.#servers.delete(redis);
    });
    redis.on('ready', () => {
      this.#epoch += 1;
      const { stream } = redis;
      factsOf(redis)
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

const replicasEveryMilliseconds = 5_000;

/** The most replicas that were seen behind a server: one that is away for a moment can still take the server's place. */
export class ReplicaCount {
  readonly #redis: Redis;
  #most: number;
  #askedAt = -Infinity;

  /** @param atLeast as many as the operator knows of */
  constructor(redis: Redis, atLeast: number) {
    this.#redis = redis;
    this.#most = atLeast;
  }

  get most(): number {
    return this.#most;
  }

  /** Asks again, now and then. */
  async count(): Promise<void> {
    if (performance.now() - this.#askedAt < replicasEveryMilliseconds) return;
    const { replicas } = await factsOf(this.#redis);
    this.#most = Math.max(this.#most, replicas);
    this.#askedAt = performance.now();
  }
}

/** Asks a server about itself. Rejects for no answer. */
export async function factsOf(redis: Redis): Promise<ServerFacts> {
  const sections = ['server', 'replication', 'memory'].map((section) => sectionOf(redis, section));
  const [server = '', replication = '', memory = ''] = await Promise.all(sections);
  return {
    runId: /^run_id:(\w+)\r?$/m.exec(server)?.[1] ?? null,
    replicas: Number(/^connected_slaves:(\d{1,4})\r?$/m.exec(replication)?.[1] ?? 0),
    policy: policyIn(memory),
  };
}
