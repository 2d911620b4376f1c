import { isDeepStrictEqual } from 'node:util';
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
 * Why a record was repaired:
 * - `missing`: it was evicted or deleted;
 * - `unknown`: the database has no record of this name;
 * - `older`: it has a former revision;
 * - `layout`: its content is the same but is written differently, for example by another release;
 * - `forged`: any other difference.
 */
const repairCauses = ['missing', 'unknown', 'older', 'layout', 'forged'] as const;

type RepairCause = (typeof repairCauses)[number];

/** The cause of a difference between store and database. */
function causeOf({ isStored, stored, value }: RecordDifference): RepairCause {
  if (!isStored) return 'missing';
  if (value === null) return 'unknown';
  if (stored !== null && matchesAll(stored, value)) return 'layout';
  return isOlder(stored, value) ? 'older' : 'forged';
}

/**
 * Whether a client without the right to do so has written the record. Eviction, deletion and another release's layout
 * are no forgery.
 */
function isForgery(cause: RepairCause): boolean {
  return cause !== 'missing' && cause !== 'layout';
}

/**
 * Whether a pending change may explain the difference.
 * @param value the record by the database, with a change in the outbox
 */
function mayBeWaiting({ isStored, stored, value }: RecordDifference): boolean {
  return !isStored || value === null || isOlder(stored, value);
}

function matchesAll(stored: object, value: object): boolean {
  const held = stored as Record<string, unknown>;
  // Earlier releases do not write the time of the last status change.
  const isAsEarlier = (name: string): boolean => name === 'statusChangedAt' && held[name] === undefined;
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

/** Options of the repairs. */
export interface RecordRepairsOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'names' | 'watched'>;
  readonly lease: Pick<Lease, 'finish'>;
  readonly clock: Clock;
  readonly monotonic: () => number;
  /** Whether the store is still in the state that the database has recorded for it. */
  readonly isContinuous: () => Promise<boolean>;
  readonly eviction: Pick<EvictionGuard, 'check' | 'memory'>;
  readonly logger?: Logger | undefined;
}

/** What this process has compared and repaired since its start. */
export interface RepairCounts {
  readonly repaired: ReadonlyMap<RepairCause, number>;
  readonly compared: number;
  /** End of the last sweep over all records, in milliseconds since 1970; null before the first. */
  readonly sweptAt: number | null;
  /** Whether this process skips missing records for now, because each repair makes Redis evict others. */
  readonly isPaused: boolean;
}

/**
 * Result of a step: there is `more` to do at once, nothing to do (`idle`), or the store is no longer the one that was
 * looked at (`lost`).
 */
export type RepairStep = 'more' | 'idle' | 'lost';

const registryActor = 'registry';
/** Limits events: a client that forges one record in a loop, or many in turn, must not fill the database. */
const windowMilliseconds = 600_000;
const mostEvents = 1_000;
const betweenLinesMilliseconds = 1_000;
const namesInLine = 10;
const longestName = 100;

/**
 * Restores every record to the state of the database when a client changes, removes or adds one in the store. Runs
 * within the projection's passes, so that a repair never replaces the record of a later change. An emptied or restored
 * store is not repaired but rebuilt.
 */
export class RecordRepairs {
  readonly #options: RecordRepairsOptions;
  readonly #sweep: RecordSweep;
  readonly #pause: RepairPause;
  /** Whether this process does not project; another one may repair. */
  #isResting = true;
  /** Whether taken records are not yet compared and repaired. */
  #isComparing = false;
  readonly #repaired = new Map<RepairCause, number>(repairCauses.map((cause) => [cause, 0]));
  #compared = 0;
  #sweptAt: number | null = null;
  /** The records of the current window that already have an event. */
  #noted = new Set<string>();
  #notedSince = -Infinity;
  /** Repairs for the next log line. */
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

  /** Whether all records were compared with the database, and every later notification was handled. */
  get isComplete(): boolean {
    const { watched } = this.#options.store;
    if (watched === null) return true;
    return watched.isQuiet && !this.#isComparing && !this.#sweep.isHasty && !this.#pause.isPaused;
  }

  /** Stops watching: this process does not project. */
  rest(): void {
    this.#isResting = true;
    this.#options.store.watched?.rest();
    this.#sweep.hasten();
  }

  /**
   * Compares and repairs some records: those with a notification, otherwise the next page of the sweep.
   * @param epoch the epoch in which the store was found consistent with the database
   * @param sweeps whether to continue the sweep; false while changes wait
   */
  async step(epoch: number | null, sweeps: boolean): Promise<RepairStep> {
    this.#isComparing = true;
    const step = await this.#step(epoch, sweeps);
    // Stays set after a failure: the store then counts as incomplete until the next comparison.
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

  /** Repairs these records if needed, also during a pause. @returns false if the step was `lost` */
  async restore(entries: readonly StoreEntry[], epoch: number | null): Promise<boolean> {
    const { watched } = this.#options.store;
    return watched === null || (await this.#check(watched, entries, epoch, true)) !== 'lost';
  }

  /** Tries to repair a few missing records, to learn whether Redis still evicts others. */
  async #try(watched: WatchedRecords, epoch: number | null): Promise<RepairStep> {
    try {
      const entries = await currentRecords(this.#options.database, await this.#pause.tryAgain());
      const step = await this.#check(watched, entries, epoch, true);
      // All of the tried records were present again.
      if (step === 'more' && this.#pause.isTrialDue) this.#pause.end();
      return step;
    } catch (error) {
      // Redis may be full and refuse writes: changes must not wait for the next trial.
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
    // Check after reading the database: a backup may have been restored in between.
    if (!(await this.#options.isContinuous())) return 'lost';
    await watched.repair(wrong, generation);
    const step = (await this.#note(wrong)) ? 'more' : 'lost';
    await this.#pause.repaired(wrong);
    return step;
  }

  /**
   * Drops records with a pending change. A forged record with a later revision stays: otherwise it would look like a
   * lost change.
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

  /** Counts, logs and records the repairs. @returns whether this process was still the one that projects */
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
    // If another process projects by now, it writes them again.
    const written = { names: repaired.map(({ name }) => name).filter(canBeKnown), revision };
    const common = { at: clock.now(), actor: registryActor, revision };
    return lease.finish(written, (transaction) => recordEvents(transaction, events, common));
  }

  /** Whether this forgery gets an event: one per record and window, up to a limit in all. */
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
