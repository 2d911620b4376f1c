import type { Clock } from '../../../gateway/ports.js';
import { refusesWrites } from '../connection.js';
import type { RecordsLink } from '../records-link.js';
import { freshMilliseconds, Lease } from './lease.js';
import { type BelievedState, type MetaCheck, StoreState } from '../store-state.js';

/** Why nothing can be decided where Redis says nothing. */
export const noAnswer = 'Redis does not answer';

/** What a gateway's standing depends on. */
export interface StandingOptions {
  readonly link: Pick<RecordsLink, 'epoch' | 'hearing' | 'witness'>;
  readonly clock: Clock;
  /** How long records are served that can no longer be known to be true. */
  readonly maxStaleMilliseconds: number;
  /** Refuses a meta record that may not be believed; null or left out: all are believed. */
  readonly checkMeta?: MetaCheck | null;
  /** Whether any record is held. */
  readonly holds: () => boolean;
  /** Told once of what operators should know, though requests are answered. */
  readonly onNotice: (notice: string) => void;
}

/** An emptied store that the registry fills. */
export interface Filling {
  readonly generation: string;
}

/**
 * What a gateway may decide at this moment, by what its beats have found out: from memory, or by asking. It holds for the
 * connections that a beat used, and no others: those that are opened next may lead to another server.
 */
export class Standing {
  readonly state: StoreState;
  readonly lease: Lease;
  readonly acknowledgement: Acknowledgement;
  /** Whether Redis answered the newest beat. Where it did not, asking would cost a request time and bring nothing. */
  answers = false;
  /** Why the newest beat that failed did. */
  failure: string | null = null;
  /** When a beat last succeeded, or the first one could have begun. */
  goodAt = performance.now();
  readonly #options: StandingOptions;
  #doubts = 0;
  /** The epochs of the connections that were judged last, and that were believed. */
  #judged = NaN;
  #believed = NaN;
  /** Whether no other server can take the place of this one, so that it may always be asked. */
  #isAlone = false;
  #last: BelievedState | null = null;
  #notice: string | null = null;

  constructor(options: StandingOptions) {
    this.#options = options;
    const { clock, maxStaleMilliseconds } = options;
    this.state = new StoreState(options.checkMeta);
    this.lease = new Lease(clock, maxStaleMilliseconds);
    this.acknowledgement = new Acknowledgement(clock, maxStaleMilliseconds + freshMilliseconds);
  }

  /** Stands for the connections of this moment, and for what was said of the store over them. */
  get epoch(): number {
    return this.#options.link.epoch + this.#doubts;
  }

  /** What was believed last; null before the first. */
  get last(): BelievedState | null {
    return this.#last;
  }

  /** Milliseconds since everything held was known to be true; for ever where nothing may be held. */
  get sinceKnownTrue(): number {
    return this.lease.enrolled ? this.lease.sinceSure : Infinity;
  }

  /** For how long after that it may be served. */
  get staleMilliseconds(): number {
    return Math.min(this.#options.maxStaleMilliseconds, this.lease.milliseconds);
  }

  /** Whether what is held can be believed without asking. */
  get fresh(): boolean {
    return (
      this.isBelieved &&
      this.#options.link.hearing &&
      this.sinceKnownTrue <= Math.min(freshMilliseconds, this.lease.milliseconds)
    );
  }

  /** The generation of the records that were believed last. */
  get generation(): string {
    return this.state.generation ?? '';
  }

  /** Stands for the connections of this moment, where what they say can be believed; null where it cannot. */
  get proof(): number | null {
    const epoch = this.epoch;
    return this.#believed === epoch && this.#whyNotAsked() === null ? epoch : null;
  }

  /**
   * The store while the registry fills it: a record is there once the registry was asked for it. Null where another server could take
   * its place, because such a store is used without a grant.
   */
  get filling(): Filling | null {
    const { filling } = this.state;
    if (filling === null || !this.answers || this.#judged !== this.epoch) return null;
    return this.#options.link.witness(filling.replicas ?? 0) === 'none' ? filling : null;
  }

  /** Why nothing can be decided; null while it can, if only from what is held. */
  get reason(): string | null {
    if (this.answers && this.isBelieved) return this.lease.enrolled ? this.acknowledgement.reason : this.#whyNotAsked();
    if (this.filling !== null) return null;
    const refused = this.answers ? (this.state.reason ?? this.acknowledgement.reason) : null;
    // The registry's former release does not wait for a gateway that does not believe its store.
    if (refused !== null && this.#judged === this.epoch && this.state.isFormer) return refused;
    const mayServe = this.sinceKnownTrue <= this.staleMilliseconds;
    if (mayServe && (refused === null || this.#options.holds())) return null;
    if (refused === null && this.#last !== null && this.isRecent) return null;
    return refused ?? (this.answers && !this.isRecent ? this.failure : null) ?? noAnswer;
  }

  /** Whether what the store says over the connections of this moment is believed. */
  get isBelieved(): boolean {
    return this.#believed === this.epoch;
  }

  /** Whether a beat succeeded a short time ago. */
  get isRecent(): boolean {
    return performance.now() - this.goodAt <= freshMilliseconds;
  }

  /** Whether the connections of this moment were judged, well or not. */
  get isJudged(): boolean {
    return this.#judged === this.epoch;
  }

  /** Whether that is to be expected, where it is not so. */
  get isJudgedSoon(): boolean {
    return !this.isJudged && (this.isRecent || this.#options.link.hearing);
  }

  /** Takes nothing for granted any more until the next beat. */
  doubt(): void {
    this.#doubts += 1;
  }

  /** The beat under way may find that the store can be believed again: requests wait for its result. */
  reconsider(): void {
    if (!this.isBelieved) this.#judged = NaN;
  }

  judge(epoch: number, isBelieved: boolean): void {
    this.#judged = epoch;
    this.#believed = isBelieved ? epoch : NaN;
  }

  /** Judges what the store says of itself, beside what this gateway remembers of it. Parameters and result are those of `StoreState`. */
  judgeState(meta: string | null, newest: string | null, servers: RecordsLink['servers']): BelievedState | null {
    return this.state.judge(meta, newest, servers, this.state.isFormer ? null : this.lease.generation);
  }

  /** Takes on what is believed. */
  adopt(found: BelievedState): void {
    this.state.adopt(found);
    const notice = this.state.notNamed;
    if (notice !== null && this.#notice === null) this.#options.onNotice(notice);
    this.#notice = notice;
    this.#last = found;
    this.#isAlone = found.replicas === null || this.#options.link.witness(found.replicas) === 'none';
  }

  /** Why a server that is believed is not asked; null where it is. */
  #whyNotAsked(): string | null {
    if (this.acknowledgement.reason !== null) return this.acknowledgement.reason;
    const { enrolled, milliseconds, sinceSure } = this.lease;
    if (this.#isAlone || sinceSure <= (enrolled ? milliseconds : freshMilliseconds)) return null;
    return 'nothing shows that this Redis server is still the master: neither the registry, nor the sentinels or its replicas';
  }
}

/**
 * Whether the registry may still wait for this gateway. An acknowledgement ends by itself, and nobody waits for a gateway
 * that has none: a server that answers but takes no writes may have been replaced by another one, where keys are revoked.
 * One that is full or cannot save refuses the registry as well, so that no change is confirmed meanwhile.
 */
export class Acknowledgement {
  readonly #clock: Clock;
  readonly #lifetimeMilliseconds: number;
  #put = { wall: -Infinity, monotonic: -Infinity };
  #isRefused = false;

  /** @param lifetimeMilliseconds how long after it began to be put nothing may be decided without another one */
  constructor(clock: Clock, lifetimeMilliseconds: number) {
    this.#clock = clock;
    this.#lifetimeMilliseconds = lifetimeMilliseconds;
  }

  /** Why nothing may be decided; null while something may, or is tried to. */
  get reason(): string | null {
    if (!this.#isRefused) return null;
    const age = Math.max(this.#clock.now() - this.#put.wall, performance.now() - this.#put.monotonic);
    return age > this.#lifetimeMilliseconds ? 'the store takes no acknowledgements' : null;
  }

  /** Whether the newest one was refused by a server that may have been replaced. */
  get isRefused(): boolean {
    return this.#isRefused;
  }

  /** Takes in that it was put. @param began before that */
  put(began: { readonly wall: number; readonly monotonic: number }): void {
    this.#put = began;
    this.#isRefused = false;
  }

  /** Takes in why it could not be put. */
  failed(error: unknown): void {
    // Another answer says that it is another server by now, or another reason; none says nothing.
    if (error instanceof Error && error.name === 'ReplyError') this.#isRefused = refusesWrites.test(error.message);
  }
}
