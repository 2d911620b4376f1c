import type { Clock } from '../../gateway/ports.js';
import { dateOf, ExitListRejected, type ExitSource, type SourceContent, type Validators } from './exit-source.js';
import { parseExitList } from './parse-list.js';
import type { SourceLists, SourceState } from './source-lists.js';
import { type AdmissionRules, admitExits, rejectShrunken } from './tor-exit-list.js';

/** Options for reading sources. */
export interface SourceReaderOptions {
  readonly lists: SourceLists;
  readonly rules: AdmissionRules;
  readonly clock: Clock;
  /** Reads a source. `known`: the validators (`ETag`, `Last-Modified`) of the stored list; null without such a list. */
  readonly read: (source: ExitSource, known: Validators | null, signal: AbortSignal) => Promise<SourceContent>;
  /** Called for each list that could not be fetched or was rejected. */
  readonly onRefused: (source: ExitSource, refused: ExitListRejected) => void;
}

/** Reads sources (URLs and files) and stores their valid lists. */
export class SourceReader {
  readonly #options: SourceReaderOptions;
  readonly #end = new AbortController();
  readonly #refusals = new Map<string, Map<string, number>>();

  constructor(options: SourceReaderOptions) {
    this.#options = options;
  }

  /**
   * Reads a source. Never rejects: a failure is counted and reported, and the previous list stays.
   * @param acceptSmaller whether a list is allowed to be much smaller than the previous one
   */
  async refresh(source: ExitSource, acceptSmaller = false): Promise<void> {
    const { lists, clock } = this.#options;
    try {
      await this.#read(source, acceptSmaller);
    } catch (error) {
      if (this.#end.signal.aborted) return;
      const refused = asRefused(error);
      lists.fail(source, new Date(clock.now()).toISOString(), refused.message);
      this.refuse(source, refused);
    }
  }

  /** Aborts the reads in progress. */
  close(): void {
    this.#end.abort();
  }

  /** Counts a rejected list by reason, and reports it. */
  refuse(source: ExitSource, refused: ExitListRejected): void {
    const counts = this.#refusals.get(source.id) ?? new Map<string, number>();
    this.#refusals.set(source.id, counts.set(refused.reason, (counts.get(refused.reason) ?? 0) + 1));
    this.#options.onRefused(source, refused);
  }

  /** Returns how many lists of a source were rejected since this process started, by reason. */
  refusalsOf({ id }: ExitSource): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#refusals.get(id) ?? []);
  }

  async #read(source: ExitSource, acceptSmaller: boolean): Promise<void> {
    const { lists, rules, clock, read } = this.#options;
    const before = lists.stateOf(source).list;
    const content = await read(source, before, this.#end.signal);
    const confirmedAt = new Date(clock.now()).toISOString();
    if (content === 'unchanged') {
      // The acceptance also matters for an unchanged list. This process may have adopted that list because it had no
      // previous list, but gateways with a much larger list reject it.
      if (acceptSmaller && before !== null) lists.accept(source, before.digest);
      lists.confirm(source, confirmedAt);
      return;
    }
    const admitted = await admitExits(parseExitList(content.text), rules);
    if (acceptSmaller) lists.accept(source, admitted.digest);
    if (!lists.isAccepted(source, admitted.digest))
      rejectShrunken(admitted.addresses.length, before?.addresses.length ?? 0);
    const { etag, lastModified } = content;
    lists.keep(source, { ...admitted, ...dateOf(content), confirmedAt, etag, lastModified });
  }
}

function asRefused(error: unknown): ExitListRejected {
  if (error instanceof ExitListRejected) return error;
  return new ExitListRejected('unreadable', 'reading the source failed unexpectedly', { cause: error });
}

/** Options for the times at which sources are read. */
export interface RefreshScheduleOptions {
  readonly refreshMilliseconds: number;
  /** Returns a random number, at least 0 and less than 1. */
  readonly random: () => number;
}

const firstRetryMilliseconds = 30_000;
const longestWithoutListMilliseconds = 60_000;
/**
 * The largest random variation of an interval in either direction, as a fraction of the interval. It keeps many
 * gateways from fetching at the same time.
 */
const jitter = 0.1;

/**
 * Decides when a source must be read: after the refresh interval, or earlier after a failure. Each further failure
 * doubles the delay, up to the refresh interval. While no list is available, the delay is also at most one minute.
 */
export class RefreshSchedule {
  readonly #options: RefreshScheduleOptions;
  readonly #drawn = new Map<string, { readonly attemptedAt: string; readonly factor: number }>();

  constructor(options: RefreshScheduleOptions) {
    this.#options = options;
  }

  /**
   * Whether the source must be read now. Without any list, retries are more frequent, so that the gateway recovers soon
   * after the cause of an outage is gone.
   * @param hasList whether a list of any source is available
   */
  isDue(source: ExitSource, { attemptedAt, failures }: SourceState, now: number, hasList: boolean): boolean {
    if (attemptedAt === null) return true;
    const { refreshMilliseconds } = this.#options;
    const longest = hasList ? refreshMilliseconds : Math.min(refreshMilliseconds, longestWithoutListMilliseconds);
    const retry = firstRetryMilliseconds * 2 ** Math.min(failures - 1, 20);
    const wait = failures === 0 ? refreshMilliseconds : Math.min(retry, longest);
    const waited = now - Date.parse(attemptedAt);
    // After the clock was set back, the last attempt may be in the future. If it is more than one interval ahead, the
    // source is read at once.
    return waited < -wait || waited >= wait * this.#factor(source, attemptedAt);
  }

  /**
   * Returns the random factor for the interval after an attempt. The factor is drawn only once per attempt. If every
   * check drew a new factor, a small factor would soon occur. The source would then always be read near the earliest
   * time.
   */
  #factor({ id }: ExitSource, attemptedAt: string): number {
    const before = this.#drawn.get(id);
    if (before?.attemptedAt === attemptedAt) return before.factor;
    const factor = 1 - jitter + 2 * jitter * this.#options.random();
    this.#drawn.set(id, { attemptedAt, factor });
    return factor;
  }
}
