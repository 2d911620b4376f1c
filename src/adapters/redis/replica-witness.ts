import type { Redis } from 'ioredis';
import { connectRedis } from './connection.js';
import type { RedisAddress } from './connection.js';
import type { AcknowledgementText } from './records-link.js';
import { factsOf } from './same-server.js';

/**
 * Where no Sentinel tells which server is the master: a replica that has what is written here has not taken its place. All of
 * them are asked, over a connection of its own: a wait would hold up what comes behind it, and says nothing where nothing was written.
 */
export class ReplicaWitness {
  readonly #redis: Redis;
  readonly #waitMilliseconds: number;
  #runId: string | null = null;

  constructor(address: RedisAddress, onError: (error: Error) => void) {
    this.#waitMilliseconds = Math.ceil(address.commandTimeoutMilliseconds / 2);
    this.#redis = connectRedis(address, onError);
    this.#redis.on('close', () => (this.#runId = null));
    this.#redis.on('ready', () => {
      const { stream } = this.#redis;
      factsOf(this.#redis)
        .then(({ runId }) => {
          if (this.#redis.stream === stream && this.#redis.status === 'ready') this.#runId = runId;
        })
        .catch(() => stream.destroy());
    });
  }

  /** Whether so many replicas have what was written after this was called to the server with this run id. Never rejects. */
  async confirms({ name, text, lifetimeMilliseconds }: AcknowledgementText, replicas: number, runId: string | null) {
    if (runId === null || this.#runId !== runId) return false;
    try {
      const results = await this.#redis
        .pipeline()
        .set(name, text, 'PX', lifetimeMilliseconds)
        .wait(replicas, this.#waitMilliseconds)
        .exec();
      const [written, waited] = results ?? [];
      return written?.[0] === null && waited?.[0] === null && Number(waited[1]) >= replicas;
    } catch {
      return false;
    }
  }

  close(): void {
    this.#redis.disconnect();
  }
}
