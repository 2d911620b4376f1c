import type { Redis } from 'ioredis';
import type { Environment } from '../../policy/key-format.js';

/** The names of the contract's records, below a prefix that several deployments on one Redis keep apart by. */
export class RecordNames {
  readonly #prefix: string;
  readonly meta: string;
  readonly revision: string;
  /** The name of the change that the revision counts: a restored database comes to the same numbers again. */
  readonly change: string;
  /** The same in a Cluster, in the slot of the revision: one script writes both. */
  readonly changeInCluster: string;
  /** On one server: who writes the records, and how much of that has come. */
  readonly writer: string;
  /** In a Cluster: which slot was changed when, at the master of the revision. */
  readonly changedSlots: string;
  /** The list of Tor exits, and the lock of the gateway that fetches it. */
  readonly torExits: string;
  readonly torExitsLock: string;

  /** @param prefix without braces, where it is for a Cluster: they would put every record into one slot */
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

  /** Of names, the look-up ids of those that are keys'. */
  lookupIdsOf(names: readonly string[]): string[] {
    return behind(this.key(''), names);
  }

  /** Of names, the ids of merchants of those that are theirs. */
  merchantIdsOf(names: readonly string[]): string[] {
    return behind(this.merchant(''), names);
  }

  /** What a gateway acknowledges. */
  gateway(instanceId: string): string {
    return `${this.#prefix}gateway:${instanceId}`;
  }

  /** The registry's leave for a gateway to use its memory. */
  grant(instanceId: string): string {
    return `${this.#prefix}grant:${instanceId}`;
  }

  /** A gateway's question for a record that it does not find. @param name of the record, with the prefix */
  ask(instanceId: string, count: number, name: string): string {
    return `${this.askPrefix}${instanceId}:${count}:${name.slice(this.#prefix.length)}`;
  }

  /** What the name of every such question begins with. */
  get askPrefix(): string {
    return `${this.#prefix}ask:`;
  }

  /** What a gateway reports as inactive before it takes on another generation; it is cut into parts. */
  inactive(instanceId: string, part: number): string {
    return `${this.inactivePrefix}${instanceId}:${part}`;
  }

  /** What the name of every such report begins with. */
  get inactivePrefix(): string {
    return `${this.#prefix}inactive:`;
  }

  /** What a merchant may still ask. Environments on one Redis are apart: trials must not use up what is for payments. */
  rate(environment: Environment, merchantId: string): string {
    return `${this.#prefix}rate:${environment}:${merchantId}`;
  }

  /** In a Cluster: what a slot says of itself. */
  slotMarker(tag: string): string {
    return `${this.#prefix}slot:{${tag}}`;
  }

  /** What the names of keys' and merchants' records begin with. */
  get recordPrefixes(): readonly string[] {
    return [this.key(''), this.merchant('')];
  }

  /** Prefixes of everything whose change a gateway has to hear of; not of what gateways write themselves. */
  get tracked(): readonly string[] {
    return [...this.recordPrefixes, this.meta, this.revision];
  }
}

function behind(prefix: string, names: readonly string[]): string[] {
  return names.filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
}

const namesAtATime = 1_000;
/** How many names a gateway has Redis look at in one step: other commands wait for that. */
export const namesOfStep = 500;

/** The names in the store that begin so. One that comes or goes meanwhile may be left out, and one may come twice. */
export async function* scanNames(redis: Redis, prefix: string): AsyncGenerator<string> {
  for await (const names of scanPages(redis, prefix, namesAtATime)) yield* names;
}

/** The same, as they come: about so many at a time, or fewer where others are between them. */
export async function* scanPages(redis: Redis, prefix: string, count: number): AsyncGenerator<readonly string[]> {
  const pattern = `${prefix.replaceAll(/[\\*?[\]]/g, '\\$&')}*`;
  let cursor = '0';
  do {
    const [next, names] = await redis.scan(cursor, 'MATCH', pattern, 'COUNT', count);
    yield names;
    cursor = next;
  } while (cursor !== '0');
}
