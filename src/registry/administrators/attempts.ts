import { LRUCache } from 'lru-cache';
import type { Author } from '../events/author.js';
import { recordEvents, type NewEvent } from '../events/repository.js';
import { readHistory } from '../projection/history.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Clock, Timers } from '../../gateway/store-ports.js';
import { countedSource } from '../../rest/counted-source.js';
import { FirstReads } from '../../rest/trail/first-reads.js';
import { type CountedRefusals, countedState, RefusalCounts } from '../../rest/trail/refusal-counts.js';

/** Length of the time window of `mostFailures`, `mostRefusals` and `mostEvents`. */
const windowMilliseconds = 60_000;
/** Limit of failed sign-ins from one IP address, or one IPv6 /64, within the time window. */
const mostFailures = 20;
/**
 * How many refused requests within the time window get an event of their own. The limit applies to each administrator
 * of the platform, and to all members of one merchant together.
 */
const mostRefusals = 20;
/**
 * Limit of stored events per minute about failed sign-ins and refused requests, from all addresses together. Without
 * this limit, an attacker could fill the database.
 */
const mostEvents = 600;
const mostSources = 10_000;

interface Window {
  readonly since: number;
  count: number;
}

/** The first of several attempts that are stored as one event: its author, and the event without the counts. */
interface First {
  readonly author: Author;
  readonly event: NewEvent;
}

const failedSignIn: NewEvent = { action: 'sign-in.failed', merchantId: '', keyId: null, before: null, after: null };

/** Dependencies of Attempts. */
interface AttemptOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  readonly timers: Timers;
}

/**
 * Counts failed sign-ins. Stores events about failed sign-ins and refused requests, up to a limit per minute. Also
 * stores an event when an administrator reads one kind of a merchant's data for the first time in an hour.
 */
export class Attempts {
  readonly #database: RegistryDatabase;
  readonly #clock: Clock;
  readonly #failures = new LRUCache<string, Window>({ max: mostSources });
  readonly #refusedRequests = new LRUCache<string, Window>({ max: mostSources });
  readonly #reads = new FirstReads();
  readonly #refusals: RefusalCounts<First>;
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
   * Counts a failed sign-in from an IP address. All addresses of an IPv6 /64 count as one.
   * @returns the seconds after which the address is allowed to try again; null if it has not exceeded its limit
   */
  failed(address: string): number | null {
    const now = this.#clock.now();
    const { since, count } = countedIn(this.#failures, countedSource(address), now);
    if (count <= mostFailures) return null;
    return Math.max(1, Math.ceil((since + windowMilliseconds - now) / 1000));
  }

  /**
   * Counts a rejected sign-in or request, for example one from an IP address with too many failed sign-ins. Stores only
   * one event per minute for each address or IPv6 /64, with the count: an event for each rejection could fill the
   * database.
   */
  refused(code: string, author: Author): void {
    this.#refusals.add(countedSource(author.source ?? ''), code, { author, event: failedSignIn });
  }

  /**
   * Stores an event about a refused request of an administrator. After many such requests of one administrator within a
   * minute, only counts further ones, and stores their number in one event per minute and cause: a missing permission or
   * another failure code. Otherwise, this administrator could use up the limit of events, and attempts of others would
   * get no event. The members of one merchant count as one administrator.
   * @param code the failure code of the response
   */
  async refusedRequest(after: { readonly needs: string }, code: string, author: Author): Promise<void> {
    const event = { action: 'attempt.refused', merchantId: '', keyId: null, before: null, after } as const;
    // A limit per token or member would not help: an administrator can create tokens, and a member can create members.
    const who = author.memberOf ?? author.administratorId ?? author.proof;
    const { count } = countedIn(this.#refusedRequests, who, this.#clock.now());
    if (count <= mostRefusals) {
      await this.record(event, author);
      return;
    }
    // Except with `permission_missing`, `needs` can contain any text from the caller, such as an address. As part of
    // the counter's key, this text would let the caller create any number of counters and events.
    const cause = code === 'permission_missing' ? after.needs : code;
    this.#refusals.add(`${who}\n${cause}`, code, { author, event });
  }

  /**
   * Stores an event about an attempt: a failed sign-in or a refused request. Above the limit of events per minute, only
   * counts the attempt. The next stored event contains the number of omitted attempts, including those whose event
   * could not be stored.
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
    try {
      await this.#store({ ...event, after }, author, now);
    } catch (error) {
      this.#omitted += omitted + attempts;
      throw error;
    }
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
   * Stores the remaining counts of refusals. Waits until the pending writes of events about reads have succeeded or
   * failed, because no request waits for these writes.
   */
  async stop(): Promise<void> {
    await Promise.all([...this.#storing, this.#refusals.stop()]);
  }

  async #storeRefusals(all: readonly CountedRefusals<First>[]): Promise<void> {
    let isAway = false;
    for (const { first, ...counted } of all) {
      const state = countedState(counted);
      const event = { ...first.event, after: { ...first.event.after, ...state } };
      // After a failed write, only counts further refusals. The next stored event contains the sum.
      if (isAway) this.#omitted += state.refusals;
      else isAway = await this.record(event, first.author, state.refusals).then(isFalse, isTrue);
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

/** Counts an attempt in the time window of this key, or in a new one, and returns the window. */
function countedIn(windows: LRUCache<string, Window>, key: string, now: number): Window {
  const known = windows.get(key);
  const current = known !== undefined && isOpen(known, now) ? known : { since: now, count: 0 };
  current.count += 1;
  windows.set(key, current);
  return current;
}

function isOpen({ since }: Window, now: number): boolean {
  return now >= since && now - since < windowMilliseconds;
}
