import type { Clock } from '../../gateway/ports.js';
import type { Environment } from '../../policy/key-format.js';
import { Acknowledgement } from './acknowledgement.js';
import type { Outage } from './outage.js';
import type { RecordNames } from './record-names.js';
import type { RecordsLink } from './records-link.js';
import { StoreState } from './store-state.js';

/** Who acknowledges. */
export interface GatewayIdentity {
  readonly instanceId: string;
  readonly environment: Environment;
  readonly host: string;
  /** ISO 8601. */
  readonly startedAt: string;
}

/** What a heartbeat is made of. */
export interface HeartbeatOptions {
  readonly link: RecordsLink;
  readonly outage: Outage;
  readonly names: RecordNames;
  readonly identity: GatewayIdentity;
  readonly clock: Clock;
  /** How long records are served that can no longer be known to be true. */
  readonly maxStaleMilliseconds: number;
  /** Told when every notice was heard, before the revision is acknowledged; and whether any may have been missed since the last time. */
  readonly onCaughtUp: (hasMissed: boolean) => void;
}

const everyMilliseconds = 500;
/** Three beats: a process that was stopped for longer must not believe what it holds before it has caught up. */
const freshMilliseconds = 1_500;
const marginMilliseconds = 5_000;

/**
 * Knows up to which moment everything that is held is true, and acknowledges it. A beat reads the newest revision,
 * catches up with the notices, and then acknowledges that revision: a record is written before its revision is, so
 * whatever changed up to it has been dropped by then.
 */
export class Heartbeat {
  readonly #options: HeartbeatOptions;
  readonly #state = new StoreState();
  readonly #acknowledgement: Acknowledgement;
  readonly #timer: NodeJS.Timeout;
  #running: Promise<void> | null = null;
  #next: Promise<void> | null = null;
  #knownTrue = { wall: -Infinity, monotonic: -Infinity };
  /** When a beat last succeeded, or the first one could have begun. */
  #goodAt = performance.now();
  #answers = false;
  /** The epoch of the link since which what is held was read: in another one notices may have been missed. */
  #heldEpoch = 0;
  #closed = false;

  constructor(options: HeartbeatOptions) {
    this.#options = options;
    this.#acknowledgement = new Acknowledgement(options.clock, options.maxStaleMilliseconds + freshMilliseconds);
    this.#timer = setInterval(() => {
      if (this.#running === null) void this.beat();
    }, everyMilliseconds).unref();
  }

  /** Milliseconds since everything held was known to be true. By a clock that was set back that was never. */
  get sinceKnownTrue(): number {
    const wall = this.#options.clock.now() - this.#knownTrue.wall;
    return wall < 0 ? Infinity : Math.max(wall, performance.now() - this.#knownTrue.monotonic);
  }

  /** Whether what is held can be believed without asking. */
  get fresh(): boolean {
    const { hearing, epoch } = this.#options.link;
    return (
      hearing &&
      epoch === this.#heldEpoch &&
      this.#state.generation !== null &&
      this.sinceKnownTrue <= freshMilliseconds
    );
  }

  /** Whether Redis answered the newest beat. Where it did not, asking would cost a request time and bring nothing. */
  get answers(): boolean {
    return this.#answers;
  }

  /** The generation of the seeded records; null while it is not known that they are, or that they are those of today. */
  get generation(): string | null {
    return this.#acknowledgement.reason === null ? this.#state.generation : null;
  }

  /** Why nothing can be decided; null while it can, if only from what is held. */
  get reason(): string | null {
    if (this.#answers) return this.#state.reason ?? this.#acknowledgement.reason;
    return this.sinceKnownTrue <= this.#options.maxStaleMilliseconds ? null : 'Redis does not answer';
  }

  /** Resolves after a beat that began when this was called, or later. */
  beat(): Promise<void> {
    if (this.#closed) return Promise.resolve();
    if (this.#running === null) {
      this.#running = this.#beat().finally(() => (this.#running = null));
      return this.#running;
    }
    this.#next ??= this.#running.then(() => {
      this.#next = null;
      return this.beat();
    });
    return this.#next;
  }

  /** Tries to be fresh again, in bounded time; where it is known that this cannot be, at once. */
  async catchUp(): Promise<void> {
    if (this.#mayHelp) await this.#running;
    if (!this.fresh && this.#answers && this.#options.link.hearing) await this.beat();
  }

  /** Takes nothing for granted any more until the next beat. */
  doubt(): void {
    this.#state.doubt();
    void this.beat();
  }

  /** Stops, and takes the acknowledgement back so that nobody waits for this gateway. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    await this.#running;
    const { link, names, identity } = this.#options;
    await link.remove(names.gateway(identity.instanceId)).catch(() => undefined);
  }

  /** Whether a beat under way is worth waiting for: during an outage each would only hold a request up. */
  get #mayHelp(): boolean {
    const isFirst = this.#knownTrue.wall === -Infinity;
    return this.#answers || isFirst;
  }

  async #beat(): Promise<void> {
    const { link, names, identity, clock, maxStaleMilliseconds, onCaughtUp } = this.#options;
    const [wall, monotonic, epoch] = [clock.now(), performance.now(), link.epoch];
    let answered = false;
    try {
      const [meta, newest] = await link.readState();
      answered = true;
      const revision = this.#state.accept(meta, newest);
      const { reason, acceptedGeneration: generation } = this.#state;
      if (meta === null || generation === null) {
        this.#report(reason);
        return;
      }
      await link.catchUp(meta, generation);
      onCaughtUp(link.epoch !== this.#heldEpoch);
      this.#heldEpoch = link.epoch;
      // It lives as long as this gateway might serve what it holds: whoever is not listed serves nothing old.
      const lifetime = maxStaleMilliseconds + freshMilliseconds + marginMilliseconds;
      await link.put(names.gateway(identity.instanceId), JSON.stringify({ revision, ...identity }), lifetime);
      this.#acknowledgement.put({ wall, monotonic });
      if (link.epoch === epoch) this.#knownTrue = { wall, monotonic };
      this.#goodAt = monotonic;
      this.#report(link.partLost);
    } catch (error) {
      this.#acknowledgement.failed(error);
      // A single beat that fails is not an outage yet, unless a connection tells of one.
      if (performance.now() - this.#goodAt > freshMilliseconds) this.#report(String(error));
    } finally {
      this.#answers = answered;
    }
  }

  #report(problem: string | null): void {
    if (problem === null) this.#options.outage.recovered();
    else this.#options.outage.failed(new Error(problem));
  }
}
