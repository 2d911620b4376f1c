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

/** How far a change has come. */
export type Propagation = Static<typeof propagationSchema>;

/** Waits until the gateways of an environment, or of both, have acknowledged a revision, at most for a bounded time. */
export type Confirmation = (revision: number, environment: Environment | null) => Promise<Propagation>;

/**
 * Waits until all records of a revision are in the gateways' store, at most for a bounded time.
 * @returns whether they are
 */
export type ProjectionWait = (revision: number) => Promise<boolean>;

/** Sources for the progress of a change. */
export interface PropagationSources extends GatewaySources {
  readonly projector: {
    /** Whether all records up to this revision are in the store. */
    hasProjected(revision: number): Promise<boolean>;
    /** Resolves at the next published change, or at the end of the projector's next pass, whether it failed or not. */
    nextPass(): Promise<void>;
  };
  readonly clock: Clock;
  readonly timers: Timers;
}

const forgottenId = 'unknown';
const longestWaitMilliseconds = 2000;
const firstPauseMilliseconds = 4;
const longestPauseMilliseconds = 100;
/** A gateway that has missed four beats has vanished, is cut off, or its process is stopped. */
const silentMilliseconds = 2000;

/** Tracks changes to the gateways. */
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

/** The entry for gateways that use records but are not in the roster, e.g. because a restored database forgot them. */
function forgottenGateways(until: number | null): Propagation['pending'][number] {
  const host = 'gateways that this database may have forgotten';
  return { instanceId: forgottenId, host, staleUntil: until === null ? null : iso(until) };
}

/** Whether an entry is the one for unidentified gateways. */
export function isForgotten({ instanceId }: Propagation['pending'][number]): boolean {
  return instanceId === forgottenId;
}

function iso(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}

/** Tracks changes to the store. */
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

/** Polls the progress of one change. A query without a reply does not delay later ones. */
class Watch {
  isProjected = false;
  /** Gateways of the environment as last seen; null if they could not be read. */
  gateways: readonly KnownGateway[] | null = null;
  /** Set while there may be unknown gateways, with the end of that if known. */
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

  /** Waits for the records before the gateways: an earlier acknowledgement proves nothing about these records. */
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
   * Queries again on news, otherwise after a pause.
   * @param nextNews called before each query, so that no news is missed
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
    // A newer query has already replied: this reply is outdated.
    if (known === null || turn < this.#repliedTo) return false;
    this.#repliedTo = turn;
    this.gateways = known.gateways.filter((one) => this.#environment === null || one.environment === this.#environment);
    this.forgotten = known.isComplete ? null : { until: known.completeAt };
    return this.#isOver(known);
  }

  /**
   * Whether waiting longer is useless. A vanished gateway stays pending, but cannot confirm within the wait. Likewise,
   * a wait for unknown gateways may end too late.
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
