import { LRUCache } from 'lru-cache';
import type { ReadCheckpoint } from '../../evidence/checkpoint.js';
import type { Selectable } from '../../database/kysely.js';
import type { RegistryTables } from '../tables.js';

/** How far two clocks may differ without a finding (a reported problem). */
export const clockToleranceMilliseconds = 60_000;

/**
 * Maximum number of runs in `#ahead`, the runs whose last checkpoint was dated in the future. If a run is evicted, its
 * next checkpoint with a future time can be reported again. A run is the part of an access log that one process writes
 * to one file. A checkpoint is a signed state of a run.
 */
const mostRuns = 10_000;
/**
 * How long a run in `#ahead` causes no further report, counted from its last checkpoint that was dated in the future.
 * In this period, another registry process may receive checkpoints with correct times. After the period, the next wrong
 * time is reported again.
 */
const rememberedMilliseconds = 3_600_000;

/** Finds checkpoints whose time contradicts the clock of this registry, or the previous checkpoint of the same run. */
export class CheckpointTimes {
  /**
   * The runs whose last checkpoint was dated in the future according to the clock of this process. The value is the
   * time at which this process received that checkpoint. The database does not show these runs, because another
   * registry with another clock can have stored the checkpoint.
   */
  readonly #ahead = new LRUCache<string, number>({ max: mostRuns });

  /**
   * Checks the time of an accepted checkpoint. A checkpoint that is late but in order is no problem: after an outage of
   * the registry, gateways submit late.
   * @param known the stored state of the run; undefined for a new run
   * @returns the problem with the time; null if the time is right, or if a time in the future was reported already
   */
  problemOf(
    origin: string,
    { at, occasion }: Pick<ReadCheckpoint, 'at' | 'occasion'>,
    known: Pick<Selectable<RegistryTables['runs']>, 'signed_at' | 'received_at'> | undefined,
    now: number,
  ): string | null {
    const isAhead = at > now + clockToleranceMilliseconds;
    const wasAhead =
      now - (this.#ahead.get(origin) ?? -Infinity) < rememberedMilliseconds ||
      (known !== undefined && known.signed_at > known.received_at + clockToleranceMilliseconds);
    if (isAhead && occasion !== 'end') this.#ahead.set(origin, now);
    else this.#ahead.delete(origin);
    const date = new Date(at).toISOString();
    if (isAhead && !wasAhead) return `the checkpoint is dated ${date}, which is in the future by the registry's clock`;
    if (known === undefined || at >= known.signed_at) return null;
    return `the checkpoint is dated ${date}, earlier than the last checkpoint of its log run`;
  }

  /**
   * Removes a run from `#ahead`. Called if the database failed, so that neither the checkpoint nor a finding about its
   * time was stored. When the gateway submits the checkpoint again, a future time must be reported.
   */
  forget(origin: string): void {
    this.#ahead.delete(origin);
  }
}
