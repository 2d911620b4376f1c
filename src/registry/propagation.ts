import type { Environment } from '../policy/key-format.js';
import type { Static } from '../typebox/typebox.js';
import type { Clock, LiveGateway, RecordsStore, Timers } from './ports.js';
import type { propagationSchema } from './propagation-schema.js';

/** How far a change has come. */
export type Propagation = Static<typeof propagationSchema>;

/** Waits until the gateways of an environment, or of both, know of a revision, or the time for that is over. */
export type Confirmation = (revision: number, environment: Environment | null) => Promise<Propagation>;

/** Waits until every record of a revision is in the gateways' store, or the time for that is over; says whether it is. */
export type ProjectionWait = (revision: number) => Promise<boolean>;

/** What is asked about the way of a change. */
export interface PropagationSources {
  readonly store: Pick<RecordsStore, 'gateways'>;
  readonly projector: {
    /** Whether every record of this revision, and of those before it, is in the store. */
    hasProjected(revision: number): Promise<boolean>;
    /** Settles when the projector has next done something. */
    nextPass(): Promise<void>;
  };
  readonly clock: Clock;
  readonly timers: Timers;
  /** How long a gateway may honour what it holds, once it cannot hear the store. */
  readonly maxStaleSeconds: number;
}

const longestWaitMilliseconds = 2000;
const firstPauseMilliseconds = 4;
const longestPauseMilliseconds = 100;
/** A gateway counts as living until its acknowledgement expires, so its last contact may lie this far back. */
const acknowledgementMarginSeconds = 15;

/** Follows changes to the gateways. */
export function followChanges(sources: PropagationSources): Confirmation {
  const { clock, timers, maxStaleSeconds } = sources;
  return async (revision, environment) => {
    const begun = clock.now();
    const watch = new Watch(sources, revision, environment);
    const deadline = cancellable(timers, longestWaitMilliseconds);
    await Promise.race([watch.untilConfirmed(), deadline.over]);
    watch.stop();
    deadline.cancel();

    const now = clock.now();
    const staleUntil = new Date(now + (maxStaleSeconds + acknowledgementMarginSeconds) * 1000).toISOString();
    const { isProjected, gateways, pending } = watch;
    return {
      gateways: gateways?.length ?? null,
      confirmed: (gateways?.length ?? 0) - pending.length,
      pending: pending.map(({ instanceId, host }) => ({
        instanceId,
        host,
        staleUntil: isProjected ? staleUntil : null,
      })),
      milliseconds: now - begun,
      ...(isProjected ? {} : { projected: false as const }),
    };
  };
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
  gateways: readonly LiveGateway[] | null = null;
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

  get pending(): readonly LiveGateway[] {
    return (this.gateways ?? []).filter(({ revision }) => revision < this.#revision);
  }

  /** Records come before gateways: what a gateway acknowledged earlier says nothing about them. */
  async untilConfirmed(): Promise<void> {
    void this.#askGateways();
    await this.untilProjected();
    await this.#until(() => this.#askGateways());
  }

  async untilProjected(): Promise<void> {
    await this.#until(() => this.#askProjector());
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelPause();
  }

  async #until(ask: () => Promise<boolean>): Promise<void> {
    const { projector, timers } = this.#sources;
    for (let pause = firstPauseMilliseconds; !this.#isStopped; pause = Math.min(pause * 2, longestPauseMilliseconds)) {
      const pass = projector.nextPass();
      if (await ask()) return;
      const timer = cancellable(timers, pause);
      this.#cancelPause = timer.cancel;
      await Promise.race([pass, timer.over]);
      timer.cancel();
    }
  }

  async #askProjector(): Promise<boolean> {
    this.isProjected = await this.#sources.projector.hasProjected(this.#revision).catch(() => false);
    return this.isProjected;
  }

  async #askGateways(): Promise<boolean> {
    const turn = (this.#asked += 1);
    const all = await this.#sources.store.gateways().catch(() => null);
    // An answer that was overtaken by a later one tells what was before.
    if (all === null || turn < this.#answered) return false;
    this.#answered = turn;
    this.gateways = all.filter(({ environment }) => this.#environment === null || environment === this.#environment);
    // One that has vanished stays pending, but it will not confirm within the wait.
    return this.pending.every(({ isSilent = false }) => isSilent);
  }
}

function cancellable(timers: Timers, milliseconds: number): { over: Promise<void>; cancel: () => void } {
  let cancel: () => void = () => undefined;
  const over = new Promise<void>((resolve) => {
    cancel = timers.after(milliseconds, resolve);
  });
  return { over, cancel };
}
