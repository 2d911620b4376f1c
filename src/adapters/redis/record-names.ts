import type { Redis } from 'ioredis';
import type { Environment } from '../../policy/key-format.js';

/** The names of the contract's records. A prefix separates deployments that share one Redis. */
export class RecordNames {
  readonly #prefix: string;
  readonly meta: string;
  readonly revision: string;
  /** The name of the change with this revision: a restored database reaches the same revision numbers again. */
  readonly change: string;
  /** The same in a Cluster, in the slot of the revision: one script writes both. */
  readonly changeInCluster: string;
  /** The writer mark, on one server: who writes the records, and how much has been written. */
  readonly writer: string;
  /** The change index of a Cluster: when each slot last changed. It is stored on the master of the revision. */
  readonly changedSlots: string;
  /** The Tor exit list, and the lock of the gateway that downloads it. */
  readonly torExits: string;
  readonly torExitsLock: string;

  /** @param prefix without braces in a Cluster: they would be a hash tag, and put every record into one slot */
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

  /** The look-up ids of the key records among these names. */
  lookupIdsOf(names: readonly string[]): string[] {
    return behind(this.key(''), names);
  }

  /** The merchant ids of the merchant records among these names. */
  merchantIdsOf(names: readonly string[]): string[] {
    return behind(this.merchant(''), names);
  }

  /** A gateway's acknowledgement. */
  gateway(instanceId: string): string {
    return `${this.#prefix}gateway:${instanceId}`;
  }

  /** The registry's grant, with which a gateway may use its cache. */
  grant(instanceId: string): string {
    return `${this.#prefix}grant:${instanceId}`;
  }

  /** A gateway's query for a missing record. @param name of the record, with the prefix */
  ask(instanceId: string, count: number, name: string): string {
    return `${this.askPrefix}${instanceId}:${count}:${name.slice(this.#prefix.length)}`;
  }

  /** The prefix of every query's name. */
  get askPrefix(): string {
    return `${this.#prefix}ask:`;
  }

  /** A gateway's report of inactive records, written before it adopts another generation; split into parts. */
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

  /** The registry's reply to a message. */
  reply(messageId: string): string {
    return `${this.#prefix}reply:${messageId}`;
  }

  /**
   * A merchant's token bucket. Environments on one Redis have separate buckets: test requests must not use up the limit
   * for payments.
   */
  rate(environment: Environment, merchantId: string): string {
    return `${this.#prefix}rate:${environment}:${merchantId}`;
  }

  /** The marker of a slot in a Cluster. */
  slotMarker(tag: string): string {
    return `${this.#prefix}slot:{${tag}}`;
  }

  /** Prefixes of the names of key and merchant records. */
  get recordPrefixes(): readonly string[] {
    return [this.key(''), this.merchant('')];
  }

  /** Prefixes that a gateway must track for invalidation; excludes the names that gateways write. */
  get tracked(): readonly string[] {
    return [...this.recordPrefixes, this.meta, this.revision];
  }
}

function behind(prefix: string, names: readonly string[]): string[] {
  return names.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
}

const namesAtATime = 1_000;
/** COUNT of a SCAN step by a gateway: other commands wait for that step. */
export const namesOfStep = 500;

/**
 * The names with this prefix. A name that is added or removed during the scan may be absent; a name may occur twice.
 */
export async function* scanNames(redis: Redis, prefix: string): AsyncGenerator<string> {
  for await (const names of scanPages(redis, prefix, namesAtATime)) yield* names;
}

/** Like `scanNames`, page by page. A page has about `count` names, or fewer if other names are in between. */
export async function* scanPages(redis: Redis, prefix: string, count: number): AsyncGenerator<readonly string[]> {
  const pattern = `${prefix.replaceAll(/[\\*?[\]]/g, '\\$&')}*`;
  let cursor = '0';
  do {
    const [next, names] = await redis.scan(cursor, 'MATCH', pattern, 'COUNT', count);
    yield names;
    cursor = next;
  } while (cursor !== '0');
}
