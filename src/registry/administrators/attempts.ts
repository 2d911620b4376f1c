import { LRUCache } from 'lru-cache';
import type { Author } from '../events/author.js';
import { recordEvents, type NewEvent } from '../events/repository.js';
import { readHistory } from '../projection/history.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Clock, Timers } from '../../gateway/store-ports.js';

/** Limits of the attempts from one source within one minute. */
const windowMilliseconds = 60_000;
const mostFailures = 20;
/** Limit of the events about attempts from all sources within one minute, so that an attacker cannot fill the database. */
const mostEvents = 600;
const mostSources = 10_000;

interface Window {
  readonly since: number;
  count: number;
}

/** The refused sign-ins of one source: the first of them, and their number by failure code. */
interface Refusals {
  readonly author: Author;
  readonly since: number;
  readonly counts: Map<string, number>;
}

/** Dependencies of the attempts. */
interface AttemptOptions {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  readonly timers: Timers;
}

/** Counts failed sign-ins, and stores events of refused attempts within limits. */
export class Attempts {
  readonly #database: RegistryDatabase;
  readonly #clock: Clock;
  readonly #timers: Timers;
  readonly #failures = new LRUCache<string, Window>({ max: mostSources });
  readonly #reads = new LRUCache<string, number>({ max: mostSources });
  #stored: Window = { since: 0, count: 0 };
  #omitted = 0;
  readonly #storing = new Set<Promise<unknown>>();
  #refusals = new Map<string, Refusals>();
  #cancelTimer: (() => void) | null = null;
  #isStopped = false;

  constructor({ database, clock, timers }: AttemptOptions) {
    this.#database = database;
    this.#clock = clock;
    this.#timers = timers;
  }

  /**
   * Counts a failed sign-in of a source.
   * @returns the seconds after which the source may try again; null while it is within its limit
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
   * Counts a sign-in that was refused unread, because there are too many or the provider is away. One event per source
   * and minute has their number, so that a source that is throttled cannot fill the database.
   */
  refused(code: string, author: Author): void {
    const source = author.source ?? '';
    const known = this.#refusals.get(source);
    if (known === undefined && (this.#isStopped || this.#refusals.size >= mostSources)) {
      this.#omitted += 1;
      return;
    }
    const refusals = known ?? { author, since: this.#clock.now(), counts: new Map<string, number>() };
    refusals.counts.set(code, (refusals.counts.get(code) ?? 0) + 1);
    this.#refusals.set(source, refusals);
    this.#cancelTimer ??= this.#timers.after(windowMilliseconds, () => {
      this.#track(this.#storeRefusals());
    });
  }

  /**
   * Stores an event about an attempt. Beyond the limit only counts it; the next stored event contains that number.
   * @param attempts how many attempts the event stands for
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
   * Stores the first read in each hour by one administrator of one merchant's records of a kind. The read does not wait
   * for it, because reads must work while the database accepts no writes. If it fails, the next read stores it.
   */
  recordRead(what: string, merchantId: string, author: Author): void {
    const now = this.#clock.now();
    const hour = Math.floor(now / 3_600_000);
    const name = `${author.administratorId ?? author.actor}\n${merchantId}\n${what}`;
    if (this.#reads.get(name) === hour) return;
    this.#reads.set(name, hour);
    const event = { action: 'merchant.read', merchantId, keyId: null, before: null, after: { what } } as const;
    this.#track(this.#store(event, author, now).catch(() => this.#reads.delete(name)));
  }

  /** Stores the counted refusals, and waits for the events that are being stored. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all([...this.#storing, this.#storeRefusals()]);
  }

  async #storeRefusals(): Promise<void> {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    const all = [...this.#refusals.values()];
    this.#refusals = new Map();
    let isAway = false;
    for (const { author, since, counts } of all) {
      const refusals = [...counts.values()].reduce((sum, count) => sum + count, 0);
      const after = {
        ...{ cause: [...counts.keys()].toSorted().join(', '), refusals },
        ...{ causes: Object.fromEntries(counts), since: new Date(since).toISOString() },
      };
      const event = { action: 'sign-in.failed', merchantId: '', keyId: null, before: null, after } as const;
      // Without the database, only the number of all is kept, for the next event.
      if (!isAway) isAway = await this.record(event, author, refusals).then(isFalse, isTrue);
      if (isAway) this.#omitted += refusals;
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
