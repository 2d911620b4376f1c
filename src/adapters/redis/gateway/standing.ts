import type { Clock } from '../../../gateway/ports.js';
import { refusesWrites } from '../connection.js';
import type { RecordsLink } from '../records-link.js';
import { freshMilliseconds, Lease } from './lease.js';
import { type BelievedState, type MetaCheck, StoreState } from '../store-state.js';

/** Why requests are refused while Redis does not reply. */
export const noReply = 'Redis does not reply';

/** Options for deciding whether a gateway may serve requests. */
export interface StandingOptions {
  readonly link: Pick<RecordsLink, 'epoch' | 'connected' | 'witness'>;
  readonly clock: Clock;
  /** How long cached records may be served while they cannot be checked. */
  readonly maxStaleMilliseconds: number;
  /**
   * Verifies the meta record, which describes the whole store, and throws if it may be forged. Null or omitted: no
   * check.
   */
  readonly checkMeta?: MetaCheck | null;
  /** Whether the cache contains any record. */
  readonly holds: () => boolean;
  /** Called once for each condition that operators should know, although requests are served. */
  readonly onNotice: (notice: string) => void;
}

/** An emptied store that the registry is refilling. */
export interface Filling {
  readonly generation: string;
}

/**
 * Decides, from the results of the heartbeats, whether a gateway may serve requests from its cache or by reading Redis.
 * A result is valid only for the connections of its heartbeat, because new connections may lead to another server.
 */
export class Standing {
  readonly state: StoreState;
  readonly lease: Lease;
  readonly acknowledgement: AcknowledgementState;
  /** Whether Redis replied to the newest heartbeat. If it did not, a read would only delay a request. */
  hasReplied = false;
  /** The error of the last failed heartbeat. */
  failure: string | null = null;
  /** When a heartbeat last succeeded; initially, when this object was created. */
  goodAt = performance.now();
  readonly #options: StandingOptions;
  #distrusts = 0;
  /**
   * The `epoch` for which a heartbeat last decided whether to trust the store; NaN: undecided. `#believed` is the same
   * number if the heartbeat trusts the store, otherwise NaN.
   */
  #judged = NaN;
  #believed = NaN;
  /** Whether no other server can replace this one, so that it may be read without further proof. */
  #cannotFailOver = false;
  #last: BelievedState | null = null;
  #notice: string | null = null;

  constructor(options: StandingOptions) {
    this.#options = options;
    const { clock, maxStaleMilliseconds } = options;
    this.state = new StoreState(options.checkMeta);
    this.lease = new Lease(clock, maxStaleMilliseconds);
    this.acknowledgement = new AcknowledgementState(clock, maxStaleMilliseconds + freshMilliseconds);
  }

  /** A number that changes when the connections change, or when `markUnverified` discards earlier results. */
  get epoch(): number {
    return this.#options.link.epoch + this.#distrusts;
  }

  /** The state of the store that a heartbeat last trusted; null if no heartbeat has trusted the store yet. */
  get last(): BelievedState | null {
    return this.#last;
  }

  /**
   * Milliseconds since the last proof that this server is the master; Infinity while the gateway must not use its
   * cache.
   */
  get sinceKnownTrue(): number {
    return this.lease.enrolled ? this.lease.sinceSure : Infinity;
  }

  /** The highest `sinceKnownTrue` at which cached records may still be served. */
  get staleMilliseconds(): number {
    return Math.min(this.#options.maxStaleMilliseconds, this.lease.milliseconds);
  }

  /** Whether cached records can be served without reading Redis. */
  get fresh(): boolean {
    return (
      this.isBelieved &&
      this.#options.link.connected &&
      this.sinceKnownTrue <= Math.min(freshMilliseconds, this.lease.milliseconds)
    );
  }

  /** The generation (one unbroken history of changes) of the records that were last trusted. */
  get generation(): string {
    return this.state.generation ?? '';
  }

  /** The current `epoch` if a heartbeat trusts the store and its server may be read; otherwise null. */
  get proof(): number | null {
    const epoch = this.epoch;
    return this.#believed === epoch && this.#whyNotAsked() === null ? epoch : null;
  }

  /**
   * The emptied store while the registry refills it; null if there is no such store that this gateway may read. If a
   * record is missing from it, the gateway queries the registry. Null also where another server could take over,
   * because these reads do not verify that the server is still the master.
   */
  get filling(): Filling | null {
    const { filling } = this.state;
    if (filling === null || !this.hasReplied || this.#judged !== this.epoch) return null;
    return this.#options.link.witness(filling.replicas ?? 0) === 'none' ? filling : null;
  }

  /** Why the gateway must refuse every request; null if it can serve some requests, even if only from its cache. */
  get reason(): string | null {
    if (this.hasReplied && this.isBelieved)
      return this.lease.enrolled ? this.acknowledgement.reason : this.#whyNotAsked();
    if (this.filling !== null) return null;
    const refused = this.hasReplied ? (this.state.reason ?? this.acknowledgement.reason) : null;
    // A registry of an earlier release confirms changes without waiting for a gateway that distrusts its store. So such
    // a gateway must refuse.
    if (refused !== null && this.#judged === this.epoch && this.state.isFormer) return refused;
    const mayServe = this.sinceKnownTrue <= this.staleMilliseconds;
    if (mayServe && (refused === null || this.#options.holds())) return null;
    if (refused === null && this.#last !== null && this.isRecent) return null;
    return refused ?? (this.hasReplied && !this.isRecent ? this.failure : null) ?? noReply;
  }

  /** Whether a heartbeat trusts the state of the store, as read over the current connections. */
  get isBelieved(): boolean {
    return this.#believed === this.epoch;
  }

  /**
   * Whether records may be read from a trusted server now. Either it is proved to be the master, or no other server can
   * replace it. If it refuses this gateway's acknowledgements for too long, it must not be read.
   */
  get isWitnessed(): boolean {
    return this.#whyNotAsked() === null;
  }

  /** Whether a heartbeat succeeded within the last 1.5 seconds. */
  get isRecent(): boolean {
    return performance.now() - this.goodAt <= freshMilliseconds;
  }

  /** Whether a heartbeat has decided, for the current connections, whether to trust the store. */
  get isJudged(): boolean {
    return this.#judged === this.epoch;
  }

  /**
   * Whether the next heartbeat is likely to succeed soon. Either no heartbeat has decided about the current connections
   * yet, or Redis left only one heartbeat without a reply.
   */
  get isJudgedSoon(): boolean {
    if (this.isJudged) return !this.hasReplied && this.isRecent;
    return this.isRecent || this.#options.link.connected;
  }

  /** Distrusts all earlier results until the next heartbeat has succeeded. */
  markUnverified(): void {
    this.#distrusts += 1;
  }

  /**
   * Withdraws a decision to distrust the store, because the running heartbeat may trust it again. Requests then wait
   * for the result of this heartbeat.
   */
  reconsider(): void {
    if (!this.isBelieved) this.#judged = NaN;
  }

  judge(epoch: number, isBelieved: boolean): void {
    this.#judged = epoch;
    this.#believed = isBelieved ? epoch : NaN;
  }

  /**
   * Decides whether to trust the state that was read from the store, given the generation (unbroken history of changes)
   * in which the registry has enrolled this gateway. Parameters and result are those of `StoreState.judge`.
   */
  judgeState(meta: string | null, newest: string | null, servers: RecordsLink['servers']): BelievedState | null {
    return this.state.judge(meta, newest, servers, this.state.isFormer ? null : this.lease.generation);
  }

  /**
   * Makes a trusted state the current one. Reports once if the registry may not have compared the server with its
   * database.
   */
  adopt(found: BelievedState): void {
    this.state.adopt(found);
    const notice = this.state.notNamed;
    if (notice !== null && this.#notice === null) this.#options.onNotice(notice);
    this.#notice = notice;
    this.#last = found;
    this.#cannotFailOver = found.replicas === null || this.#options.link.witness(found.replicas) === 'none';
  }

  /**
   * Returns why a trusted server must not be read, for example because it may not be the master; null if it may be
   * read.
   */
  #whyNotAsked(): string | null {
    if (this.acknowledgement.reason !== null) return this.acknowledgement.reason;
    const { enrolled, milliseconds, sinceSure } = this.lease;
    if (this.#cannotFailOver || sinceSure <= (enrolled ? milliseconds : freshMilliseconds)) return null;
    return 'cannot verify that this Redis server is still the master: the registry, the sentinels and the replicas do not confirm it';
  }
}

/**
 * Tracks whether this gateway's acknowledgement has expired, so that the registry no longer waits for it. A server that
 * replies but refuses writes may have been replaced by a server on which keys are revoked. A server that is full or
 * cannot save is still used: it refuses the registry's writes too, so no change is confirmed.
 */
export class AcknowledgementState {
  readonly #clock: Clock;
  readonly #lifetimeMilliseconds: number;
  #put = { wall: -Infinity, monotonic: -Infinity };
  #isRefused = false;

  /**
   * @param lifetimeMilliseconds how long an acknowledgement allows the gateway to decide requests, counted from before
   * its write
   */
  constructor(clock: Clock, lifetimeMilliseconds: number) {
    this.#clock = clock;
    this.#lifetimeMilliseconds = lifetimeMilliseconds;
  }

  /** Why the gateway must refuse all requests; null if it may decide them. */
  get reason(): string | null {
    if (!this.#isRefused) return null;
    const age = Math.max(this.#clock.now() - this.#put.wall, performance.now() - this.#put.monotonic);
    return age > this.#lifetimeMilliseconds
      ? 'Redis does not accept writes of this gateway, which it needs to acknowledge changes'
      : null;
  }

  /** Whether the newest acknowledgement was refused by a server that may have been replaced. */
  get isRefused(): boolean {
    return this.#isRefused;
  }

  /**
   * Records a successful write of an acknowledgement.
   * @param began a time before the write
   */
  put(began: { readonly wall: number; readonly monotonic: number }): void {
    this.#put = began;
    this.#isRefused = false;
  }

  /** Records why the write of an acknowledgement failed. */
  failed(error: unknown): void {
    // Other error replies do not show that this server was replaced by another one. A missing reply proves nothing.
    if (error instanceof Error && error.name === 'ReplyError') this.#isRefused = refusesWrites.test(error.message);
  }
}
