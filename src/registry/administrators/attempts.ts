import { LRUCache } from 'lru-cache';
import type { Author } from '../events/author.js';
import { recordEvents, type NewEvent } from '../events/repository.js';
import { readHistory } from '../projection/history.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Clock, Timers } from '../../gateway/store-ports.js';
import { FirstReads } from '../../rest/trail/first-reads.js';
import { type CountedRefusals, countedState, RefusalCounts } from '../../rest/trail/refusal-counts.js';

/** Length of the time window of each limit in this file. */
const windowMilliseconds = 60_000;
/** Limit of failed sign-ins from one IP address within the time window. */
const mostFailures = 20;
/**
 * Limit of stored events per minute about failed sign-ins and refused requests, from all addresses together. Without
 * it, an attacker could fill the database.
 */
const mostEvents = 600;
const mostSources = 10_000;

interface Window {
  readonly since: number;
  count: number;
}

/** Dependencies of Attempts. */
interface AttemptOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  readonly timers: Timers;
}

/**
 * Counts failed sign-ins. Stores events about failed sign-ins and refused requests, up to a limit per minute. Also
 * stores an event for each administrator's first read of a merchant's data in an hour.
 */
export class Attempts {
  readonly #database: RegistryDatabase;
  readonly #clock: Clock;
  readonly #failures = new LRUCache<string, Window>({ max: mostSources });
  readonly #reads = new FirstReads();
  readonly #refusals: RefusalCounts<Author>;
  #stored: Window = { since: 0, count: 0 };
  #omitted = 0;
  readonly #storing = new Set<Promise<unknown>>();

  constructor({ database, clock, timers }: AttemptOptions) {
    this.#database = database;
    this.#clock = clock;
    this.#refusals = new RefusalCounts({
      ...{ clock, timers, mostKeys: mostSources, store: (all) => this.#storeRefusals(all) },
      omit: () => void (this.#omitted += 1),
    });
  }

  /**
   * Counts a failed sign-in from an IP address.
   * @returns the seconds after which the address is allowed to try again; null if it has not exceeded its limit
   */
  failed(source: string): number | null {
    const now = this.#clock.now();
    const known = this.#failures.get(source);
    const current = known !== undefined && isOpen(known, now) ? known : { since: now, count: 0 };
    current.count += 1;
    this.#failures.set(source, current);
    if (current.count <= mostFailures) return null;
    return Math.max(1, Math.ceil((current.since + windowMilliseconds - now) / 1000));
  }

  /**
   * Counts a rejected sign-in or request, for example one from an IP address with too many failed sign-ins. Stores only
   * one event per address and minute, with the count: an event for each rejection could fill the database.
   */
  refused(code: string, author: Author): void {
    this.#refusals.add(author.source ?? '', code, author);
  }

  /**
   * Stores an event about an attempt (a failed sign-in or a refused request). Above the limit per minute, only counts
   * the attempt. The next stored event contains the number of omitted attempts.
   * @param attempts how many attempts the event represents
   */
  async record(event: NewEvent, author: Author, attempts = 1): Promise<void> {
    const now = this.#clock.now();
    if (!isOpen(this.#stored, now)) this.#stored = { since: now, count: 0 };
    this.#stored.count += 1;
    if (this.#stored.count > mostEvents) {
      this.#omitted += attempts;
      return;
    }
    const omitted = this.#omitted;
    this.#omitted = 0;
    const after = omitted === 0 ? event.after : { ...event.after, omittedBefore: omitted };
    await this.#store({ ...event, after }, author, now);
  }

  /**
   * Stores the event of a read if this administrator has not yet read this kind of data of the merchant in this hour.
   */
  recordRead(what: string, merchantId: string, author: Author): void {
    const now = this.#clock.now();
    const event = { action: 'merchant.read', merchantId, keyId: null, before: null, after: { what } } as const;
    const storing = this.#reads.note(author, merchantId, what, now, () => this.#store(event, author, now));
    if (storing !== null) this.#track(storing);
  }

  /**
   * Stores the counts of refused sign-ins and requests. Waits until every pending write of an event has succeeded or
   * failed.
   */
  async stop(): Promise<void> {
    await Promise.all([...this.#storing, this.#refusals.stop()]);
  }

  async #storeRefusals(all: readonly CountedRefusals<Author>[]): Promise<void> {
    let isAway = false;
    for (const counted of all) {
      const after = countedState(counted);
      const event = { action: 'sign-in.failed', merchantId: '', keyId: null, before: null, after } as const;
      // After a failed write, only adds up the remaining refusals. The next stored event contains the sum.
      if (!isAway) isAway = await this.record(event, counted.first, after.refusals).then(isFalse, isTrue);
      if (isAway) this.#omitted += after.refusals;
    }
  }

  #track(storing: Promise<unknown>): void {
    const tracked = storing.finally(() => this.#storing.delete(tracked));
    this.#storing.add(tracked);
  }

  #store(event: NewEvent, author: Author, at: number): Promise<void> {
    return this.#database.transaction().execute(async (transaction) => {
      const { revision } = await readHistory(transaction);
      await recordEvents(transaction, [event], { at, author, revision });
    });
  }
}

const isTrue = (): boolean => true;
const isFalse = (): boolean => false;

function isOpen({ since }: Window, now: number): boolean {
  return now >= since && now - since < windowMilliseconds;
}
