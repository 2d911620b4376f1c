import type { Environment } from '../policy/key-format.js';
import type { Static } from '../typebox/typebox.js';
import {
  knownGateways,
  type GatewaySources,
  type KnownGateway,
  type KnownGateways,
} from './gateways/known-gateways.js';
import type { Clock, Timers } from '../gateway/store-ports.js';
import type { propagationSchema } from './propagation-schema.js';

/** Which gateways have acknowledged a change and therefore no longer use the old record. */
export type Propagation = Static<typeof propagationSchema>;

/**
 * Waits until all gateways of an environment have acknowledged the change with the number `revision`, or until a
 * timeout. If `environment` is null, waits for the gateways of every environment.
 */
export type Confirmation = (revision: number, environment: Environment | null) => Promise<Propagation>;

/**
 * Waits until all changes up to `revision` are in the store from which gateways read, or until a timeout.
 * @returns whether these changes are in the store
 */
export type ProjectionWait = (revision: number) => Promise<boolean>;

/** Dependencies of `followChanges` and `followProjection`. */
export interface PropagationSources extends GatewaySources {
  readonly projector: {
    /** Whether all changes up to this revision (number of a change) are in the store. */
    hasProjected(revision: number): Promise<boolean>;
    /**
     * Resolves when the next change is published (announced to gateways), or when the next pass ends. A pass is an
     * attempt to write pending changes. A failed pass counts too.
     */
    nextPass(): Promise<void>;
  };
  readonly clock: Clock;
  readonly timers: Timers;
}

const forgottenId = 'unknown';
const longestWaitMilliseconds = 2000;
const firstPauseMilliseconds = 4;
const longestPauseMilliseconds = 100;
/**
 * The registry does not wait for a gateway that has sent no heartbeat for this time, in which four heartbeats were due.
 * Such a gateway has ended, hangs or has lost its connection.
 */
const silentMilliseconds = 2000;

/** Creates the function that waits until gateways have acknowledged a change. */
export function followChanges(sources: PropagationSources): Confirmation {
  const { clock, timers } = sources;
  return async (revision, environment) => {
    const begun = clock.now();
    const watch = new Watch(sources, revision, environment);
    const deadline = cancellable(timers, longestWaitMilliseconds);
    await Promise.race([watch.untilConfirmed(), deadline.over]);
    watch.stop();
    deadline.cancel();

    const now = clock.now();
    const { isProjected, gateways, pending, forgotten } = watch;
    const waited = pending.map(({ instanceId, host, lifetimeMilliseconds, silentMilliseconds: silent }) => ({
      ...{ instanceId, host },
      staleUntil: isProjected ? iso(now + Math.max(0, lifetimeMilliseconds - silent)) : null,
    }));
    return {
      gateways: gateways?.length ?? null,
      confirmed: (gateways?.length ?? 0) - pending.length,
      pending: forgotten === null ? waited : [...waited, forgottenGateways(isProjected ? forgotten.until : null)],
      milliseconds: now - begun,
      ...(isProjected ? {} : { projected: false as const }),
    };
  };
}

/**
 * Creates one entry for all gateways that could use cached records but are missing in the roster (the database's list
 * of gateways), for example after a restore of the database.
 */
function forgottenGateways(until: number | null): Propagation['pending'][number] {
  const host = 'gateways that are not in the restored database';
  return { instanceId: forgottenId, host, staleUntil: until === null ? null : iso(until) };
}

/** Whether a pending entry stands for all gateways that are missing in the roster (the database's list of gateways). */
export function isForgotten({ instanceId }: Propagation['pending'][number]): boolean {
  return instanceId === forgottenId;
}

function iso(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}

/** Creates the function that waits until a change is in the store from which gateways read. */
export function followProjection(sources: PropagationSources): ProjectionWait {
  return async (revision) => {
    const watch = new Watch(sources, revision, null);
    const deadline = cancellable(sources.timers, longestWaitMilliseconds);
    await Promise.race([watch.untilProjected(), deadline.over]);
    watch.stop();
    deadline.cancel();
    return watch.isProjected;
  };
}

/** Polls the progress of one change until it is complete or `stop()` is called. */
class Watch {
  isProjected = false;
  /** The known gateways of the change's environment, from the last successful query; null before the first one. */
  gateways: readonly KnownGateway[] | null = null;
  /**
   * Set if gateways that could use cached records are missing in the roster (the database's list of gateways). `until`
   * is when the last of these records expires, or null if this time is unknown. Without such gateways, and before the
   * first query, the field itself is null.
   */
  forgotten: { readonly until: number | null } | null = null;
  readonly #sources: PropagationSources;
  readonly #revision: number;
  readonly #environment: Environment | null;
  #isStopped = false;
  #queries = 0;
  #repliedTo = 0;
  #cancelPause: () => void = () => undefined;

  constructor(sources: PropagationSources, revision: number, environment: Environment | null) {
    this.#sources = sources;
    this.#revision = revision;
    this.#environment = environment;
  }

  get pending(): readonly KnownGateway[] {
    return (this.gateways ?? []).filter(({ revision }) => (revision ?? -1) < this.#revision);
  }

  /**
   * Waits until the records are in the store, and after that until each gateway has acknowledged (confirmed) the
   * change. The query at the beginning only lists the gateways: the result of this query cannot end the wait.
   */
  async untilConfirmed(): Promise<void> {
    void this.#queryGateways();
    await this.untilProjected();
    const { projector, store } = this.#sources;
    const news = (): Promise<unknown> => Promise.race([projector.nextPass(), store.nextAcknowledgement()]);
    await this.#until(() => this.#queryGateways(), news);
  }

  async untilProjected(): Promise<void> {
    await this.#until(
      () => this.#queryProjector(),
      () => this.#sources.projector.nextPass(),
    );
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelPause();
  }

  /**
   * Repeats a query at each notification, or after a pause if no notification arrives. Ends when the query returns true
   * or `stop()` is called.
   * @param nextNews waits for the next notification. Called before each query, so that a notification during the query
   * is not missed
   */
  async #until(ask: () => Promise<boolean>, nextNews: () => Promise<unknown>): Promise<void> {
    const { timers } = this.#sources;
    for (let pause = firstPauseMilliseconds; !this.#isStopped; pause = Math.min(pause * 2, longestPauseMilliseconds)) {
      const news = nextNews();
      if (await ask()) return;
      const timer = cancellable(timers, pause);
      this.#cancelPause = timer.cancel;
      await Promise.race([news, timer.over]);
      timer.cancel();
    }
  }

  async #queryProjector(): Promise<boolean> {
    this.isProjected = await this.#sources.projector.hasProjected(this.#revision).catch(() => false);
    return this.isProjected;
  }

  async #queryGateways(): Promise<boolean> {
    const turn = (this.#queries += 1);
    const known = await knownGateways(this.#sources).catch(() => null);
    // Ignores an outdated reply: the reply to a newer query has already arrived.
    if (known === null || turn < this.#repliedTo) return false;
    this.#repliedTo = turn;
    this.gateways = known.gateways.filter((one) => this.#environment === null || one.environment === this.#environment);
    this.forgotten = known.isComplete ? null : { until: known.completeAt };
    return this.#isOver(known);
  }

  /**
   * Whether to stop waiting. Both conditions must hold:
   * 1. Each known gateway has acknowledged the change or stopped sending heartbeats.
   * 2. The roster (the list of gateways) is complete, or will be complete only after the timeout. In the latter case,
   *    waiting would not help.
   */
  #isOver({ isComplete, completeAt }: KnownGateways): boolean {
    const ends =
      isComplete || (completeAt !== null && completeAt - this.#sources.clock.now() > longestWaitMilliseconds);
    return ends && this.pending.every((one) => one.silentMilliseconds >= silentMilliseconds);
  }
}

function cancellable(timers: Timers, milliseconds: number): { over: Promise<void>; cancel: () => void } {
  let cancel: () => void = () => undefined;
  const over = new Promise<void>((resolve) => {
    cancel = timers.after(milliseconds, resolve);
  });
  return { over, cancel };
}
