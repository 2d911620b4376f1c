import { isDeepStrictEqual } from 'node:util';
import { registryAuthor } from '../events/author.js';
import { type NewEvent, recordEvents } from '../events/repository.js';
import type {
  Clock,
  RecordDifference,
  Logger,
  RecordsStore,
  StoreEntry,
  WatchedRecords,
} from '../../gateway/store-ports.js';
import type { RegistryDatabase } from '../registry-database.js';
import { canBeKnown, currentRecords } from './current-records.js';
import { readHistory } from './history.js';
import type { Lease } from './lease.js';
import { pageLength } from './pages.js';
import { RecordSweep } from './record-sweep.js';
import { type EvictionGuard, RepairPause } from './repair-pause.js';

/**
 * Why a record in the store was rewritten or deleted:
 * - `missing`: the record was evicted or deleted;
 * - `unknown`: the database has no record with this name;
 * - `older`: the record has an earlier revision (number of a change) than the database;
 * - `layout`: the content is the same, but the JSON is not, for example because another release wrote it;
 * - `forged`: the record differs in any other way.
 */
const repairCauses = ['missing', 'unknown', 'older', 'layout', 'forged'] as const;

type RepairCause = (typeof repairCauses)[number];

/** Returns why the store and the database differ in a record. */
function causeOf({ isStored, stored, value }: RecordDifference): RepairCause {
  if (!isStored) return 'missing';
  if (value === null) return 'unknown';
  if (stored !== null && matchesAll(stored, value)) return 'layout';
  return isOlder(stored, value) ? 'older' : 'forged';
}

/** Whether the cause shows that another Redis client wrote the record. `missing` and `layout` can be harmless. */
function isForgery(cause: RepairCause): boolean {
  return cause !== 'missing' && cause !== 'layout';
}

/**
 * Whether a change in the outbox (not yet written to the store) could explain the difference.
 * @param value the record according to the database
 */
function mayBeWaiting({ isStored, stored, value }: RecordDifference): boolean {
  return !isStored || value === null || isOlder(stored, value);
}

/** Members of a record that earlier releases do not write, so their absence is no difference. */
const laterMembers: ReadonlySet<string> = new Set(['statusChangedAt', 'label', 'graceEndsAt']);

function matchesAll(stored: object, value: object): boolean {
  const held = stored as Record<string, unknown>;
  const isAsEarlier = (name: string): boolean => laterMembers.has(name) && held[name] === undefined;
  return Object.entries(value).every(([name, member]) => isAsEarlier(name) || isDeepStrictEqual(held[name], member));
}

function isOlder(stored: object | null, value: object): boolean {
  const [held, own] = [revisionOf(stored), revisionOf(value)];
  return held !== null && own !== null && held < own;
}

function revisionOf(record: object | null): number | null {
  const { revision = null } = (record ?? {}) as { revision?: unknown };
  return typeof revision === 'number' && Number.isSafeInteger(revision) ? revision : null;
}

/** Dependencies of RecordRepairs. */
export interface RecordRepairsOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'names' | 'watched'>;
  readonly lease: Pick<Lease, 'finish'>;
  readonly clock: Clock;
  readonly monotonic: () => number;
  /** Whether the store's Redis servers and newest change are still those that the database has recorded. */
  readonly isContinuous: () => Promise<boolean>;
  readonly eviction: Pick<EvictionGuard, 'check' | 'memory'>;
  readonly logger?: Logger | undefined;
}

/** Counts of the records that this process has compared and repaired since its start. */
export interface RepairCounts {
  readonly repaired: ReadonlyMap<RepairCause, number>;
  readonly compared: number;
  /** End of the last comparison of all records, in milliseconds since 1970; null before the first one ends. */
  readonly sweptAt: number | null;
  /** Whether missing records are skipped for now, because each repair makes Redis evict other records. */
  readonly isPaused: boolean;
}

/**
 * Result of a step. `more`: continue at once; `idle`: nothing to do; `lost`: the store is no longer the one that was
 * compared, or another process now writes to it.
 */
export type RepairStep = 'more' | 'idle' | 'lost';

/** Period in which at most `mostEvents` forgery events are stored, so that a Redis client cannot fill the database. */
const windowMilliseconds = 600_000;
const mostEvents = 1_000;
const betweenLinesMilliseconds = 1_000;
const namesInLine = 10;
const longestName = 100;

/**
 * Restores records that another Redis client changed or deleted, and deletes records that it added. Repairs run between
 * the writes of changes, so they never overwrite a later change. `Rebuild` rewrites an emptied or restored store.
 */
export class RecordRepairs {
  readonly #options: RecordRepairsOptions;
  readonly #sweep: RecordSweep;
  readonly #pause: RepairPause;
  /** True while another process writes to the store, and after a failure. This process then repairs nothing. */
  #isResting = true;
  /** Whether records were taken from the queue but not yet compared and repaired. */
  #isComparing = false;
  readonly #repaired = new Map<RepairCause, number>(repairCauses.map((cause) => [cause, 0]));
  #compared = 0;
  #sweptAt: number | null = null;
  /** Names of the records for which a `record.forged` event was stored in the current period of ten minutes. */
  #noted = new Set<string>();
  #notedSince = -Infinity;
  /** A sample of the repairs since the last log line. */
  #unlogged: { name: string; cause: RepairCause }[] = [];
  #unloggedCounts: Partial<Record<RepairCause, number>> = {};
  #loggedAt = -Infinity;

  constructor(options: RecordRepairsOptions) {
    this.#options = options;
    this.#sweep = new RecordSweep(options);
    this.#pause = new RepairPause({
      ...options,
      onEnded: () => {
        this.#sweep.hasten();
      },
    });
  }

  get counts(): RepairCounts {
    const isPaused = this.#pause.isPaused && !this.#isResting;
    return { repaired: this.#repaired, compared: this.#compared, sweptAt: this.#sweptAt, isPaused };
  }

  /** Whether all records were compared, all later Redis notifications are processed, and repairs are not paused. */
  get isComplete(): boolean {
    const { watched } = this.#options.store;
    if (watched === null) return true;
    return watched.isQuiet && !this.#isComparing && !this.#sweep.isHasty && !this.#pause.isPaused;
  }

  /** Stops watching the store. Called when another process writes to the store, or after a failure. */
  rest(): void {
    this.#isResting = true;
    this.#options.store.watched?.rest();
    this.#sweep.hasten();
  }

  /**
   * Compares and repairs one page of records, from the first of these sources that has records:
   * 1. the records of a trial repair, if `RepairPause` says that a trial is due;
   * 2. the records that Redis reported as changed; 3. the sweep (scan of all records).
   * @param epoch identifies the Redis server on which the store was found consistent with the database
   * @param sweeps whether to continue the sweep; false while changes are pending
   */
  async step(epoch: number | null, sweeps: boolean): Promise<RepairStep> {
    this.#isComparing = true;
    const step = await this.#step(epoch, sweeps);
    // An exception skips this line. In this case, the store counts as incomplete until the next comparison.
    this.#isComparing = false;
    return step;
  }

  async #step(epoch: number | null, sweeps: boolean): Promise<RepairStep> {
    const { database, store } = this.#options;
    if (store.watched === null) return 'idle';
    this.#isResting = false;
    this.#log();
    if (this.#pause.isTrialDue) return this.#try(store.watched, epoch);
    const { names, isIncomplete } = store.watched.take(pageLength);
    if (isIncomplete) this.#sweep.hasten();
    if (names.length > 0) return this.#check(store.watched, await currentRecords(database, names), epoch);
    const page = sweeps ? await this.#sweep.next() : null;
    if (page === null) return 'idle';
    if (page !== 'done') return this.#check(store.watched, page, epoch);
    this.#sweptAt = this.#options.clock.now();
    return 'idle';
  }

  /** Compares and repairs these records, even while repairs are paused. @returns false if the result was `lost` */
  async restore(entries: readonly StoreEntry[], epoch: number | null): Promise<boolean> {
    const { watched } = this.#options.store;
    return watched === null || (await this.#check(watched, entries, epoch, true)) !== 'lost';
  }

  /** During a pause, repairs a few missing records to test whether repairs still make Redis evict other records. */
  async #try(watched: WatchedRecords, epoch: number | null): Promise<RepairStep> {
    try {
      const entries = await currentRecords(this.#options.database, await this.#pause.tryAgain());
      const step = await this.#check(watched, entries, epoch, true);
      // The trial is still due if it found no missing record to repair. Ends the pause in this case.
      if (step === 'more' && this.#pause.isTrialDue) this.#pause.end();
      return step;
    } catch (error) {
      // Redis could be full and refuse writes. Extends the pause, because each failed trial delays changes.
      this.#pause.prolong();
      throw error;
    }
  }

  async #check(
    watched: WatchedRecords,
    entries: readonly StoreEntry[],
    epoch: number | null,
    isTrial = false,
  ): Promise<RepairStep> {
    const { generation } = await readHistory(this.#options.database);
    const found = await watched.compare(entries, generation);
    this.#compared += entries.length;
    if (found.differences.length === 0) return 'more';
    if (found.epoch !== epoch) return 'lost';
    const differences = isTrial ? found.differences : this.#pause.withoutPaused(found.differences);
    const wrong = await this.#withoutWaiting(differences);
    if (wrong.length === 0) return 'more';
    // Checks the store only now, because a backup might have been restored after the records were read and compared.
    if (!(await this.#options.isContinuous())) return 'lost';
    await watched.repair(wrong, generation);
    const step = (await this.#note(wrong)) ? 'more' : 'lost';
    await this.#pause.repaired(wrong);
    return step;
  }

  /**
   * Omits records that could differ from the database because of a pending change. Still returns a forged record that
   * has a later revision than the database. Otherwise the writer would treat this record as a change that the database
   * has lost.
   */
  async #withoutWaiting(differences: readonly RecordDifference[]): Promise<RecordDifference[]> {
    const names = differences.map(({ name }) => name).filter(canBeKnown);
    if (names.length === 0) return [...differences];
    const rows = await this.#options.database
      .selectFrom('outbox')
      .select('name')
      .where('name', 'in', names)
      .distinct()
      .execute();
    const waiting = new Set(rows.map(({ name }) => name));
    return differences.filter((one) => !waiting.has(one.name) || !mayBeWaiting(one));
  }

  /** Counts and logs repairs, and stores forgery events. @returns false if another process now writes to the store */
  async #note(repaired: readonly RecordDifference[]): Promise<boolean> {
    const { database, clock, lease } = this.#options;
    const events: NewEvent[] = [];
    for (const difference of repaired) {
      const cause = causeOf(difference);
      this.#repaired.set(cause, (this.#repaired.get(cause) ?? 0) + 1);
      this.#unloggedCounts[cause] = (this.#unloggedCounts[cause] ?? 0) + 1;
      const name = difference.name.slice(0, longestName);
      if (this.#unlogged.length < namesInLine) this.#unlogged.push({ name, cause });
      if (isForgery(cause) && this.#isEvent(name)) events.push(eventOf(difference, name, cause));
    }
    this.#log();
    const { revision } = await readHistory(database);
    // If another process now has the lease (the right to write), `finish` makes that process write these records again.
    const written = { names: repaired.map(({ name }) => name).filter(canBeKnown), revision };
    const common = { at: clock.now(), author: registryAuthor, revision };
    return lease.finish(written, async (transaction) => {
      await recordEvents(transaction, events, common);
    });
  }

  /** Whether to store an event for a forgery: one per record in ten minutes, up to a total limit. */
  #isEvent(name: string): boolean {
    const now = this.#options.monotonic();
    if (now - this.#notedSince >= windowMilliseconds) [this.#noted, this.#notedSince] = [new Set(), now];
    if (this.#noted.has(name) || this.#noted.size >= mostEvents) return false;
    this.#noted.add(name);
    return true;
  }

  #log(): void {
    const { monotonic, logger } = this.#options;
    if (this.#unlogged.length === 0 || monotonic() - this.#loggedAt < betweenLinesMilliseconds) return;
    const details = { repaired: this.#unloggedCounts, records: this.#unlogged };
    logger?.warn(details, 'records in the store differed from the database and were rewritten');
    [this.#unlogged, this.#unloggedCounts, this.#loggedAt] = [[], {}, monotonic()];
  }
}

function eventOf({ value }: RecordDifference, record: string, cause: RepairCause): NewEvent {
  const { keyId = null, merchantId } = (value ?? {}) as { keyId?: string; merchantId?: string };
  const ofName = record.startsWith('merchant:') ? record.slice('merchant:'.length) : '';
  return {
    ...{ action: 'record.forged', merchantId: merchantId ?? ofName, keyId },
    ...{ before: null, after: { record, cause } },
  };
}
