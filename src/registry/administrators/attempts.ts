import { LRUCache } from 'lru-cache';
import type { Author } from '../events/author.js';
import { recordEvents, type NewEvent } from '../events/repository.js';
import { readHistory } from '../projection/history.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Clock } from '../../gateway/store-ports.js';

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

/** Counts failed sign-ins, and stores events of refused attempts within limits. */
export class Attempts {
  readonly #database: RegistryDatabase;
  readonly #clock: Clock;
  readonly #failures = new LRUCache<string, Window>({ max: mostSources });
  readonly #reads = new LRUCache<string, number>({ max: mostSources });
  #stored: Window = { since: 0, count: 0 };
  #omitted = 0;
  readonly #storing = new Set<Promise<unknown>>();

  constructor({ database, clock }: { readonly database: RegistryDatabase; readonly clock: Clock }) {
    this.#database = database;
    this.#clock = clock;
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

  /** Stores an event about an attempt. Beyond the limit only counts it; the next stored event contains that number. */
  async record(event: NewEvent, author: Author): Promise<void> {
    const now = this.#clock.now();
    if (!isOpen(this.#stored, now)) this.#stored = { since: now, count: 0 };
    this.#stored.count += 1;
    if (this.#stored.count > mostEvents) {
      this.#omitted += 1;
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
    const storing = this.#store(event, author, now)
      .catch(() => this.#reads.delete(name))
      .finally(() => this.#storing.delete(storing));
    this.#storing.add(storing);
  }

  /** Waits for the events that are being stored. */
  async settled(): Promise<void> {
    await Promise.all(this.#storing);
  }

  #store(event: NewEvent, author: Author, at: number): Promise<void> {
    return this.#database.transaction().execute(async (transaction) => {
      const { revision } = await readHistory(transaction);
      await recordEvents(transaction, [event], { at, author, revision });
    });
  }
}

function isOpen({ since }: Window, now: number): boolean {
  return now >= since && now - since < windowMilliseconds;
}
