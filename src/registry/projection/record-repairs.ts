import { isDeepStrictEqual } from 'node:util';
import { type NewEvent, recordEvents } from '../events/repository.js';
import type { Clock, Difference, Logger, RecordsStore, StoreEntry, WatchedRecords } from '../../gateway/store-ports.js';
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
 * - `unknown`: the database does not know its name;
 * - `older`: it names a former revision;
 * - `layout`: it says the same in another text, as that of another release may;
 * - `forged`: anything else.
 */
const repairCauses = ['missing', 'unknown', 'older', 'layout', 'forged'] as const;

/** One of them. */
type RepairCause = (typeof repairCauses)[number];

/** Why a record that is stored otherwise is repaired. */
function causeOf({ isStored, stored, value }: Difference): RepairCause {
  if (!isStored) return 'missing';
  if (value === null) return 'unknown';
  if (stored !== null && saysAll(stored, value)) return 'layout';
  return isOlder(stored, value) ? 'older' : 'forged';
}

/** Whether somebody has written a record who may not: eviction, deletion and another release of the registry are no forgery. */
function isForgery(cause: RepairCause): boolean {
  return cause !== 'missing' && cause !== 'layout';
}

/**
 * Whether a record may be as it is because its newest change is yet to be projected.
 * @param value what it should be, by the database, where that change is waiting
 */
function mayBeWaiting({ isStored, stored, value }: Difference): boolean {
  return !isStored || value === null || isOlder(stored, value);
}

function saysAll(stored: object, value: object): boolean {
  const held = stored as Record<string, unknown>;
  return Object.entries(value).every(([name, member]) => isDeepStrictEqual(held[name], member));
}

function isOlder(stored: object | null, value: object): boolean {
  const [held, own] = [revisionOf(stored), revisionOf(value)];
  return held !== null && own !== null && held < own;
}

function revisionOf(record: object | null): number | null {
  const { revision = null } = (record ?? {}) as { revision?: unknown };
  return typeof revision === 'number' && Number.isSafeInteger(revision) ? revision : null;
}

/** What records are repaired with. */
export interface RecordRepairsOptions {
  readonly database: RegistryDatabase;
  readonly store: Pick<RecordsStore, 'names' | 'watched'>;
  readonly lease: Pick<Lease, 'finish'>;
  readonly clock: Clock;
  readonly monotonic: () => number;
  /** Whether the store is, at this moment, what the database says that it was left as. */
  readonly isContinuous: () => Promise<boolean>;
  readonly eviction: Pick<EvictionGuard, 'look' | 'memory'>;
  readonly logger?: Logger | undefined;
}

/** What was compared and repaired since the start of this process. */
export interface RepairFigures {
  readonly repaired: ReadonlyMap<RepairCause, number>;
  readonly compared: number;
  /** When all records were last compared, in milliseconds since 1970; null where that was never. */
  readonly sweptAt: number | null;
  /** Whether this process leaves records missing for now, because Redis evicts others for them. */
  readonly isPaused: boolean;
}

/** What a step came to: there is more to do at once; there is not; or the store is not the one any more that was looked at. */
export type RepairStep = 'more' | 'idle' | 'lost';

const registryActor = 'registry';
/** Whoever forges the same record in a loop, or one record after the other, must not fill the database. */
const windowMilliseconds = 600_000;
const mostEvents = 1_000;
const betweenLinesMilliseconds = 1_000;
const namesInLine = 10;
const longestName = 100;

/**
 * Keeps every record as the database has it, whoever changes, removes or adds one in the store. It works in the projection's own
 * turn, so that a repair never replaces the record of a later change. A store that was emptied, or has gone back, is not repaired:
 * everything is written anew then.
 */
export class RecordRepairs {
  readonly #options: RecordRepairsOptions;
  readonly #sweep: RecordSweep;
  readonly #pause: RepairPause;
  /** Another process may be the one that repairs. */
  #isResting = true;
  /** Whether some records were taken that are not compared and repaired yet. */
  #isComparing = false;
  readonly #repaired = new Map<RepairCause, number>(repairCauses.map((cause) => [cause, 0]));
  #compared = 0;
  #sweptAt: number | null = null;
  /** The records of this time for which there is an event. */
  #noted = new Set<string>();
  #notedSince = -Infinity;
  /** What the next line tells of. */
  #untold: { name: string; cause: RepairCause }[] = [];
  #untoldCounts: Partial<Record<RepairCause, number>> = {};
  #toldAt = -Infinity;

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

  get figures(): RepairFigures {
    const isPaused = this.#pause.isPaused && !this.#isResting;
    return { repaired: this.#repaired, compared: this.#compared, sweptAt: this.#sweptAt, isPaused };
  }

  /** Whether all records were compared with the database, and every change since then was noticed and repaired. */
  get isComplete(): boolean {
    const { watched } = this.#options.store;
    if (watched === null) return true;
    return watched.isQuiet && !this.#isComparing && !this.#sweep.isHasty && !this.#pause.isPaused;
  }

  /** This process does not project. */
  rest(): void {
    this.#isResting = true;
    this.#options.store.watched?.rest();
    this.#sweep.hasten();
  }

  /**
   * Compares some records: those that somebody has changed or, if there are none, the next ones of all. Repairs what is wrong.
   * @param epoch that in which the store was found to be what the database says
   * @param sweeps whether to go on with all records: not while changes wait
   */
  async step(epoch: number | null, sweeps: boolean): Promise<RepairStep> {
    this.#isComparing = true;
    const step = await this.#step(epoch, sweeps);
    // After a failure the store is compared anew.
    this.#isComparing = false;
    return step;
  }

  async #step(epoch: number | null, sweeps: boolean): Promise<RepairStep> {
    const { database, store } = this.#options;
    if (store.watched === null) return 'idle';
    this.#isResting = false;
    this.#tell();
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

  /** Repairs these records where they need it, also during a pause. @returns false where a step would be lost */
  async restore(entries: readonly StoreEntry[], epoch: number | null): Promise<boolean> {
    const { watched } = this.#options.store;
    return watched === null || (await this.#check(watched, entries, epoch, true)) !== 'lost';
  }

  /** Repairs a few records that are missing, and finds out whether Redis evicts others for them. */
  async #try(watched: WatchedRecords, epoch: number | null): Promise<RepairStep> {
    try {
      const entries = await currentRecords(this.#options.database, await this.#pause.tryAgain());
      const step = await this.#check(watched, entries, epoch, true);
      // None of them was missing any more.
      if (step === 'more' && this.#pause.isTrialDue) this.#pause.end();
      return step;
    } catch (error) {
      // Redis may be full, and refuse writes: changes must not wait for the next trial.
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
    // After the database was read: what it says may be that of a backup which was put back in between.
    if (!(await this.#options.isContinuous())) return 'lost';
    await watched.repair(wrong, generation);
    const step = (await this.#note(wrong)) ? 'more' : 'lost';
    await this.#pause.repaired(wrong);
    return step;
  }

  /** Without those that wait to be projected. What an attacker stores as later than the database would be taken for a lost change. */
  async #withoutWaiting(differences: readonly Difference[]): Promise<Difference[]> {
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

  /** @returns whether this process was the one that projects */
  async #note(repaired: readonly Difference[]): Promise<boolean> {
    const { database, clock, lease } = this.#options;
    const events: NewEvent[] = [];
    for (const difference of repaired) {
      const cause = causeOf(difference);
      this.#repaired.set(cause, (this.#repaired.get(cause) ?? 0) + 1);
      this.#untoldCounts[cause] = (this.#untoldCounts[cause] ?? 0) + 1;
      const name = difference.name.slice(0, longestName);
      if (this.#untold.length < namesInLine) this.#untold.push({ name, cause });
      if (isForgery(cause) && this.#isEvent(name)) events.push(eventOf(difference, name, cause));
    }
    this.#tell();
    const { revision } = await readHistory(database);
    // Whoever projects by now writes them once more.
    const written = { names: repaired.map(({ name }) => name).filter(canBeKnown), revision };
    const common = { at: clock.now(), actor: registryActor, revision };
    return lease.finish(written, (transaction) => recordEvents(transaction, events, common));
  }

  /** Whether the forgery of a record is an event: once in a time, and only so many in all. */
  #isEvent(name: string): boolean {
    const now = this.#options.monotonic();
    if (now - this.#notedSince >= windowMilliseconds) [this.#noted, this.#notedSince] = [new Set(), now];
    if (this.#noted.has(name) || this.#noted.size >= mostEvents) return false;
    this.#noted.add(name);
    return true;
  }

  #tell(): void {
    const { monotonic, logger } = this.#options;
    if (this.#untold.length === 0 || monotonic() - this.#toldAt < betweenLinesMilliseconds) return;
    const details = { repaired: this.#untoldCounts, records: this.#untold };
    logger?.warn(details, 'records in the store were not what the database says; they were written anew');
    [this.#untold, this.#untoldCounts, this.#toldAt] = [[], {}, monotonic()];
  }
}

function eventOf({ value }: Difference, record: string, cause: RepairCause): NewEvent {
  const { keyId = null, merchantId } = (value ?? {}) as { keyId?: string; merchantId?: string };
  const ofName = record.startsWith('merchant:') ? record.slice('merchant:'.length) : '';
  return {
    ...{ action: 'record.forged', merchantId: merchantId ?? ofName, keyId },
    ...{ before: null, after: { record, cause } },
  };
}
