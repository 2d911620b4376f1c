import type { Redis } from 'ioredis';
import Type from 'typebox';
import { Compile } from 'typebox/compile';
import type { LiveGateway } from '../../registry/ports.js';
import { InvalidationListener } from './invalidation-listener.js';
import type { RecordNames } from './record-names.js';
import { scanNames } from './scan-names.js';

/** No registry ever counts so far; a higher revision is a damaged record, and the registry would take it for its own. */
const highestRevision = 2 ** 50;

const acknowledgement = Compile(
  Type.Object({
    instanceId: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
    revision: Type.Integer({ minimum: 0, maximum: highestRevision }),
    environment: Type.Enum(['live', 'test']),
    host: Type.String({ maxLength: 255 }),
    startedAt: Type.String({ maxLength: 40 }),
  }),
);

/**
 * The gateways that live. Redis tells of each acknowledgement as it is written, so that nobody has to look through a
 * million records for a handful of gateways, and yet none that lives is overlooked.
 */
export class GatewayDirectory {
  readonly #redis: Redis;
  readonly #names: RecordNames;
  readonly #listener: InvalidationListener;
  readonly #known = new Set<string>();
  #complete = false;

  /** @param listening a connection of its own, for the notices */
  constructor(redis: Redis, listening: Redis, names: RecordNames) {
    this.#redis = redis;
    this.#names = names;
    this.#listener = new InvalidationListener(listening, [names.gateway('')], {
      onChanged: (changed) => {
        for (const name of changed) this.#known.add(name);
      },
      onEverythingChanged: () => (this.#complete = false),
      onDeaf: () => (this.#complete = false),
    });
  }

  /** Every gateway whose acknowledgement stands at this moment. One that cannot be read counts as having none. */
  async list(): Promise<LiveGateway[]> {
    if (this.#listener.hearing) await this.#listener.catchUp();
    if (!this.#complete) await this.#lookThrough();
    const names = [...this.#known];
    if (names.length === 0) return [];
    const texts = await this.#redis.mget(names);
    return names.flatMap((name, index) => {
      const text = texts[index] ?? null;
      if (text === null) this.#known.delete(name);
      const gateway = text === null ? null : read(text);
      return gateway === null ? [] : [gateway];
    });
  }

  async #lookThrough(): Promise<void> {
    const { epoch, hearing } = this.#listener;
    for await (const name of scanNames(this.#redis, this.#names.gateway(''))) this.#known.add(name);
    // What was written while nothing could be heard may have been missed; then the next call looks again.
    this.#complete = hearing && this.#listener.hearing && this.#listener.epoch === epoch;
  }
}

function read(text: string): LiveGateway | null {
  try {
    const value: unknown = JSON.parse(text);
    return acknowledgement.Check(value) ? value : null;
  } catch {
    return null;
  }
}
