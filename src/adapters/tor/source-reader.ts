import type { Clock } from '../../gateway/ports.js';
import { dateOf, ExitListRefused, type ExitSource, type SourceContent, type Validators } from './exit-source.js';
import { parseExitList } from './parse-list.js';
import type { SourceLists, SourceState } from './source-lists.js';
import { type AdmissionRules, admitExits, refuseShrunken } from './tor-exit-list.js';

/** What sources are read with. */
export interface SourceReaderOptions {
  readonly lists: SourceLists;
  readonly rules: AdmissionRules;
  readonly clock: Clock;
  /** Reads a source's content; `known` are the validators of the list that is there already. */
  readonly read: (source: ExitSource, known: Validators | null, signal: AbortSignal) => Promise<SourceContent>;
  /** Told of each list that could not be had or was refused. */
  readonly onRefused: (source: ExitSource, refused: ExitListRefused) => void;
}

/** Reads sources, and puts what may be used into their lists. */
export class SourceReader {
  readonly #options: SourceReaderOptions;
  readonly #end = new AbortController();
  readonly #refusals = new Map<string, Map<string, number>>();

  constructor(options: SourceReaderOptions) {
    this.#options = options;
  }

  /**
   * Reads a source. Never rejects: what fails is counted and told, and the list before stays.
   * @param acceptSmaller whether a list may be much smaller than the one before
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

  /** Breaks off what is being read. */
  close(): void {
    this.#end.abort();
  }

  /** Counts and tells a refusal. */
  refuse(source: ExitSource, refused: ExitListRefused): void {
    const counts = this.#refusals.get(source.id) ?? new Map<string, number>();
    this.#refusals.set(source.id, counts.set(refused.reason, (counts.get(refused.reason) ?? 0) + 1));
    this.#options.onRefused(source, refused);
  }

  /** Refusals of a source so far, by reason. */
  refusalsOf({ id }: ExitSource): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#refusals.get(id) ?? []);
  }

  async #read(source: ExitSource, acceptSmaller: boolean): Promise<void> {
    const { lists, rules, clock, read } = this.#options;
    const before = lists.stateOf(source).list;
    const content = await read(source, before, this.#end.signal);
    const confirmedAt = new Date(clock.now()).toISOString();
    if (content === 'unchanged') {
      lists.confirm(source, confirmedAt);
      return;
    }
    const admitted = await admitExits(parseExitList(content.text), rules);
    if (!acceptSmaller) refuseShrunken(admitted.addresses.length, before?.addresses.length ?? 0);
    const { etag, lastModified } = content;
    lists.keep(source, { ...admitted, ...dateOf(content), confirmedAt, etag, lastModified });
  }
}

function asRefused(error: unknown): ExitListRefused {
  if (error instanceof ExitListRefused) return error;
  return new ExitListRefused('unreadable', 'reading it failed in a way that was not foreseen', { cause: error });
}

/** How often sources are read. */
export interface RefreshScheduleOptions {
  readonly refreshMilliseconds: number;
  /** From 0 up to 1. */
  readonly random: () => number;
}

const firstRetryMilliseconds = 30_000;
const longestWithoutListMilliseconds = 60_000;
/** Of the time until the next attempt, to both sides: the clocks of many gateways must not strike together. */
const jitter = 0.1;

/** When a source is due: after the refresh interval, or sooner after a failure, then twice as long after each further one, or a minute without a list. */
export class RefreshSchedule {
  readonly #options: RefreshScheduleOptions;
  readonly #drawn = new Map<string, { readonly attemptedAt: string; readonly factor: number }>();

  constructor(options: RefreshScheduleOptions) {
    this.#options = options;
  }

  /** @param hasList whether a list of any source is in force: an outage without one should not outlast its cause by an hour */
  isDue(source: ExitSource, { attemptedAt, failures }: SourceState, now: number, hasList: boolean): boolean {
    if (attemptedAt === null) return true;
    const { refreshMilliseconds } = this.#options;
    const longest = hasList ? refreshMilliseconds : Math.min(refreshMilliseconds, longestWithoutListMilliseconds);
    const retry = firstRetryMilliseconds * 2 ** Math.min(failures - 1, 20);
    const wait = failures === 0 ? refreshMilliseconds : Math.min(retry, longest);
    const waited = now - Date.parse(attemptedAt);
    // By a clock that was set back an attempt may lie ahead; it counts for nothing.
    return waited < -wait || waited >= wait * this.#factor(source, attemptedAt);
  }

  /** Drawn once for each attempt, or a gateway that looks often would always draw the least. */
  #factor({ id }: ExitSource, attemptedAt: string): number {
    const before = this.#drawn.get(id);
    if (before?.attemptedAt === attemptedAt) return before.factor;
    const factor = 1 - jitter + 2 * jitter * this.#options.random();
    this.#drawn.set(id, { attemptedAt, factor });
    return factor;
  }
}
