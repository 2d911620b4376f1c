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

/** Waits until the gateways of an environment, or of both, know of a revision, or the time for that is over. */
export type Confirmation = (revision: number, environment: Environment | null) => Promise<Propagation>;

/** Waits until every record of a revision is in the gateways' store, or the time for that is over; says whether it is. */
export type ProjectionWait = (revision: number) => Promise<boolean>;

/** What is asked about the way of a change. */
export interface PropagationSources extends GatewaySources {
  readonly projector: {
    /** Whether every record of this revision, and of those before it, is in the store. */
    hasProjected(revision: number): Promise<boolean>;
    /** Settles when the projector has next done something. */
    nextPass(): Promise<void>;
  };
  readonly clock: Clock;
  readonly timers: Timers;
}

const forgottenId = 'unknown';
const longestWaitMilliseconds = 2000;
const firstPauseMilliseconds = 4;
const longestPauseMilliseconds = 100;
/** A gateway that has missed four beats has vanished, or is cut off, or its process is stopped. */
const silentMilliseconds = 2000;

/** Follows changes to the gateways. */
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

/** Stands for gateways that use records and are not in the roster: the database was restored, say, and has forgotten them. */
function forgottenGateways(until: number | null): Propagation['pending'][number] {
  const host = 'gateways that this database may have forgotten';
  return { instanceId: forgottenId, host, staleUntil: until === null ? null : iso(until) };
}

/** Whether an entry stands for gateways that nobody can name. */
export function isForgotten({ instanceId }: Propagation['pending'][number]): boolean {
  return instanceId === forgottenId;
}

function iso(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}

/** Follows changes to the store. */
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

/** Looks again and again how far one change has come. A question that is never answered holds up no other. */
class Watch {
  isProjected = false;
  /** Those of the environment, as they were last seen; null where they could not be asked. */
  gateways: readonly KnownGateway[] | null = null;
  /** Set while there may be gateways that are not known, with the end of that, if it is known. */
  forgotten: { readonly until: number | null } | null = null;
  readonly #sources: PropagationSources;
  readonly #revision: number;
  readonly #environment: Environment | null;
  #isStopped = false;
  #asked = 0;
  #answered = 0;
  #cancelPause: () => void = () => undefined;

  constructor(sources: PropagationSources, revision: number, environment: Environment | null) {
    this.#sources = sources;
    this.#revision = revision;
    this.#environment = environment;
  }

  get pending(): readonly KnownGateway[] {
    return (this.gateways ?? []).filter(({ revision }) => (revision ?? -1) < this.#revision);
  }

  /** Records come before gateways: what a gateway acknowledged earlier says nothing about them. */
  async untilConfirmed(): Promise<void> {
    void this.#askGateways();
    await this.untilProjected();
    const { projector, store } = this.#sources;
    const news = (): Promise<unknown> => Promise.race([projector.nextPass(), store.nextAcknowledgement()]);
    await this.#until(() => this.#askGateways(), news);
  }

  async untilProjected(): Promise<void> {
    await this.#until(
      () => this.#askProjector(),
      () => this.#sources.projector.nextPass(),
    );
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelPause();
  }

  /** Asks again when there is news, and otherwise after a while. @param nextNews called before the question, so that none is missed */
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

  async #askProjector(): Promise<boolean> {
    this.isProjected = await this.#sources.projector.hasProjected(this.#revision).catch(() => false);
    return this.isProjected;
  }

  async #askGateways(): Promise<boolean> {
    const turn = (this.#asked += 1);
    const known = await knownGateways(this.#sources).catch(() => null);
    // A reply that was overtaken by a later one tells what was before.
    if (known === null || turn < this.#answered) return false;
    this.#answered = turn;
    this.gateways = known.gateways.filter((one) => this.#environment === null || one.environment === this.#environment);
    this.forgotten = known.isComplete ? null : { until: known.completeAt };
    return this.#isOver(known);
  }

  /** One that has vanished stays pending, but it will not confirm within the wait; nor does a longer wait end within it. */
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
