import type { Redis } from 'ioredis';
import type { Environment } from '../../policy/key-format.js';

/** The names of all records in Redis, as in docs/records.md. A prefix separates deployments that share one Redis. */
export class RecordNames {
  readonly #prefix: string;
  readonly meta: string;
  readonly revision: string;
  /**
   * Name under which Redis stores the id of the newest change. The id tells two changes apart that have the same
   * revision: a restored database reaches the same numbers again.
   */
  readonly change: string;
  /**
   * Name of the newest change's id in a Cluster. Its hash tag puts it into the slot of `revision`, so that one script
   * can write both.
   */
  readonly changeInCluster: string;
  /** A fencing token on a single server: the current writer of the records, and the number of its writes. */
  readonly writer: string;
  /** The change index of a Cluster, with the newest revision of each slot. It is in the slot of `revision`. */
  readonly changedSlots: string;
  /** The Tor exit list. */
  readonly torExits: string;
  readonly torExitsLock: string;

  /** @param prefix without braces in a Cluster, because a hash tag would put every record into one slot */
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

  /** Returns the lookup ids of the key records among these names. */
  lookupIdsOf(names: readonly string[]): string[] {
    return behind(this.key(''), names);
  }

  /** Returns the merchant ids of the merchant records among these names. */
  merchantIdsOf(names: readonly string[]): string[] {
    return behind(this.merchant(''), names);
  }

  /** Name of a gateway's acknowledgement, which states the revision up to which the gateway has applied all changes. */
  gateway(instanceId: string): string {
    return `${this.#prefix}gateway:${instanceId}`;
  }

  /** Name of the registry's grant: a lease that lets a gateway use its cache. */
  grant(instanceId: string): string {
    return `${this.#prefix}grant:${instanceId}`;
  }

  /**
   * Name of a gateway's query to the registry for a missing record.
   * @param name of the record, with the prefix
   */
  ask(instanceId: string, count: number, name: string): string {
    return `${this.askPrefix}${instanceId}:${count}:${name.slice(this.#prefix.length)}`;
  }

  /** The prefix of the names of all queries. */
  get askPrefix(): string {
    return `${this.#prefix}ask:`;
  }

  /**
   * Name of one part of a gateway's report of inactive records. The gateway writes it before it adopts another
   * generation.
   */
  inactive(instanceId: string, part: number): string {
    return `${this.inactivePrefix}${instanceId}:${part}`;
  }

  /** The prefix of the names of all reports of inactive records. */
  get inactivePrefix(): string {
    return `${this.#prefix}inactive:`;
  }

  /** The stream of messages from gateways to the registry. */
  get messages(): string {
    return `${this.#prefix}messages`;
  }

  /** The stream of request counts from gateways. */
  get usage(): string {
    return `${this.#prefix}usage`;
  }

  /** Name of the registry's reply to a message. */
  reply(messageId: string): string {
    return `${this.#prefix}reply:${messageId}`;
  }

  /**
   * Name of a merchant's token bucket (rate limit). Environments have separate buckets, so that test requests do not
   * use up the limit for payments.
   */
  rate(environment: Environment, merchantId: string): string {
    return `${this.#prefix}rate:${environment}:${merchantId}`;
  }

  /** Name of the marker of a Cluster slot, which shows up to which revision the slot is complete. */
  slotMarker(tag: string): string {
    return `${this.#prefix}slot:{${tag}}`;
  }

  /** Prefixes of the names of key and merchant records. */
  get recordPrefixes(): readonly string[] {
    return [this.key(''), this.merchant('')];
  }

  /** Name prefixes whose changes Redis reports to a gateway. Names that gateways write are not among them. */
  get tracked(): readonly string[] {
    return [...this.recordPrefixes, this.meta, this.revision];
  }
}

function behind(prefix: string, names: readonly string[]): string[] {
  return names.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
}

const namesAtATime = 1_000;
/** COUNT of one SCAN step of a gateway. It is small, because other commands of Redis wait for that step. */
export const namesOfStep = 500;

/**
 * Scans for the names with this prefix. A name may occur twice. A name that is added or removed during the scan may be
 * absent.
 */
export async function* scanNames(redis: Redis, prefix: string): AsyncGenerator<string> {
  for await (const names of scanPages(redis, prefix, namesAtATime)) yield* names;
}

/**
 * Scans like `scanNames`, but page by page. Redis examines about `count` names per page, so a page may contain fewer
 * names or be empty.
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
