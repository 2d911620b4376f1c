import type { Redis } from 'ioredis';
import type { Environment } from '../../policy/key-format.js';

/** Builds all Redis keys, as in docs/records.md. A prefix separates deployments that share one Redis. */
export class RecordNames {
  readonly #prefix: string;
  readonly meta: string;
  readonly revision: string;
  /**
   * Redis key of the id of the newest change. Two changes can have the same revision (number), because a database that
   * was restored from a backup reaches the same numbers again. The id tells such changes apart.
   */
  readonly change: string;
  /**
   * Redis key of the newest change's id in a Cluster. The hash tag puts this key into the same slot as the key
   * `revision`, so that one script can write both keys.
   */
  readonly changeInCluster: string;
  /**
   * Redis key of the fencing token on a single server: the current writer of the records, and the number of its writes.
   */
  readonly writer: string;
  /**
   * Redis key of a Cluster's change index, which stores the newest revision of each slot. A revision is the number of a
   * change. The index is in the same slot as the key `revision`.
   */
  readonly changedSlots: string;
  /** Redis key of the Tor exit list. */
  readonly torExits: string;
  readonly torExitsLock: string;

  /** @param prefix must not contain braces in a Cluster: they would be a hash tag and put every record into one slot */
  constructor(prefix: string) {
    this.#prefix = prefix;
    this.meta = `${prefix}meta`;
    this.revision = `${prefix}revision`;
    this.change = `${prefix}change`;
    this.changeInCluster = `${prefix}change:{${this.revision}}`;
    this.writer = `${prefix}writer`;
    this.changedSlots = `${prefix}changed:{${this.revision}}`;
    this.torExits = `${prefix}tor-exits`;
    this.torExitsLock = `${prefix}tor-exits:lock`;
  }

  key(lookupId: string): string {
    return `${this.#prefix}key:${lookupId}`;
  }

  merchant(merchantId: string): string {
    return `${this.#prefix}merchant:${merchantId}`;
  }

  /** Returns the lookup ids (hashes of API keys) of the key records among these Redis keys. */
  lookupIdsOf(names: readonly string[]): string[] {
    return behind(this.key(''), names);
  }

  /** Returns the merchant ids of the merchant records among these Redis keys. */
  merchantIdsOf(names: readonly string[]): string[] {
    return behind(this.merchant(''), names);
  }

  /**
   * Redis key of a gateway's acknowledgement, which states the revision up to which the gateway has applied all
   * changes.
   */
  gateway(instanceId: string): string {
    return `${this.#prefix}gateway:${instanceId}`;
  }

  /** Redis key of the registry's grant: a lease that lets a gateway use its cache. */
  grant(instanceId: string): string {
    return `${this.#prefix}grant:${instanceId}`;
  }

  /**
   * Redis key of a gateway's query to the registry for a missing record.
   * @param count sequence number of the query in this gateway process
   * @param name Redis key of the record, with the prefix
   */
  ask(instanceId: string, count: number, name: string): string {
    return `${this.askPrefix}${instanceId}:${count}:${name.slice(this.#prefix.length)}`;
  }

  /** The prefix of the Redis keys of all gateways' queries for missing records. */
  get askPrefix(): string {
    return `${this.#prefix}ask:`;
  }

  /**
   * Redis key of one part of a gateway's report of inactive keys and merchants, whose status denies requests. The
   * gateway writes the report before it adopts another generation (history of changes), because that generation may
   * lack revocations.
   */
  inactive(instanceId: string, part: number): string {
    return `${this.inactivePrefix}${instanceId}:${part}`;
  }

  /** The prefix of the Redis keys of all gateways' reports of inactive keys and merchants. */
  get inactivePrefix(): string {
    return `${this.#prefix}inactive:`;
  }

  /** Redis key of the stream of messages from gateways to the registry. */
  get messages(): string {
    return `${this.#prefix}messages`;
  }

  /** Redis key of the stream of request counts from gateways. */
  get usage(): string {
    return `${this.#prefix}usage`;
  }

  /** Redis key of the registry's reply to a message. */
  reply(messageId: string): string {
    return `${this.#prefix}reply:${messageId}`;
  }

  /**
   * Redis key of a merchant's token bucket (rate limit). Environments have separate buckets, so that test requests do
   * not use up the limit for payments.
   */
  rate(environment: Environment, merchantId: string): string {
    return `${this.#prefix}rate:${environment}:${merchantId}`;
  }

  /** Redis key of a slot's marker in a Cluster. The marker states the revision up to which the slot is complete. */
  slotMarker(tag: string): string {
    return `${this.#prefix}slot:{${tag}}`;
  }

  /** Prefixes of the Redis keys of key and merchant records. */
  get recordPrefixes(): readonly string[] {
    return [this.key(''), this.merchant('')];
  }

  /**
   * Prefixes of the Redis keys whose changes Redis reports to a gateway. They do not match the keys that gateways
   * write, so those writes cause no messages.
   */
  get tracked(): readonly string[] {
    return [...this.recordPrefixes, this.meta, this.revision];
  }
}

function behind(prefix: string, names: readonly string[]): string[] {
  return names.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
}

const namesAtATime = 1_000;
/** COUNT of one SCAN step of a gateway. It is small, because other clients wait until the step ends. */
export const namesOfStep = 500;

/**
 * Scans for the Redis keys with this prefix. The same key can occur twice. A key that is added or removed during the
 * scan can be absent.
 */
export async function* scanNames(redis: Redis, prefix: string): AsyncGenerator<string> {
  for await (const names of scanPages(redis, prefix, namesAtATime)) yield* names;
}

/**
 * Scans like `scanNames`, but page by page. Redis examines about `count` keys per page, so a page can contain fewer
 * keys or be empty.
 */
export async function* scanPages(redis: Redis, prefix: string, count: number): AsyncGenerator<readonly string[]> {
  const pattern = `${prefix.replaceAll(/[\\*?[\]]/g, '\\$&')}*`;
  let cursor = '0';
  do {
    const [next, names] = await redis.scan(cursor, 'MATCH', pattern, 'COUNT', count);
    yield names;
    cursor = next;
  } while (cursor !== '0');
}
