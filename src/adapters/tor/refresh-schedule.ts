import type { ExitSource } from './exit-source.js';
import type { SourceState } from './source-lists.js';

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
