import { later, momentOf } from '../../database/database-clock.js';
import type { RouteContext } from '../routes.js';
import { forgetAnswers } from './repository.js';

/** What old answers are forgotten with. */
interface OldAnswersOptions extends Pick<RouteContext, 'database' | 'clock'> {
  /** A time in milliseconds that only goes forward, at the pace of real time. */
  readonly monotonic?: (() => number) | undefined;
}

const keptMilliseconds = 24 * 60 * 60 * 1000;
/** How much faster than real time a clock may go from one look to the next, when it is put right a little. */
const toleranceMilliseconds = 60_000;

/**
 * Forgets answers after 24 hours, by a clock that somebody may put forward: then it forgets nothing for 24 hours. By that
 * time what was kept before is really that old; a payout under a key that was forgotten too early would be paid twice.
 */
export class OldAnswers {
  readonly #options: OldAnswersOptions;
  readonly #monotonic: () => number;
  #last: { readonly now: number; readonly at: number } | null = null;
  #forgetsFrom = Number.NEGATIVE_INFINITY;

  constructor(options: OldAnswersOptions) {
    this.#options = options;
    this.#monotonic = options.monotonic ?? (() => performance.now());
  }

  /** Forgets some, from the second look on; true where there may be more. */
  async forget(): Promise<boolean> {
    const { database, clock } = this.#options;
    const last = this.#last;
    const at = this.#monotonic();
    const { now } = await database.selectNoFrom(clock.now().as('now')).executeTakeFirstOrThrow();
    this.#last = { now, at };
    if (last === null) return false;
    if (now - last.now > at - last.at + toleranceMilliseconds) this.#forgetsFrom = at + keptMilliseconds;
    return at >= this.#forgetsFrom && forgetAnswers(database, later(momentOf(now), -keptMilliseconds));
  }
}
