import type { Clock } from '../../../gateway/ports.js';
import { refusesWrites } from '../connection.js';
import type { RecordsLink } from '../records-link.js';
import { freshMilliseconds, Lease } from './lease.js';
import { type BelievedState, type MetaCheck, StoreState } from '../store-state.js';

/** The reason that is given for refused requests while Redis does not reply. */
export const noReply = 'Redis does not reply';

/** Options for deciding whether a gateway is allowed to serve requests. */
export interface StandingOptions {
  readonly link: Pick<RecordsLink, 'epoch' | 'connected' | 'witness'>;
  readonly clock: Clock;
  /** How long the gateway is allowed to serve cached records that Redis has not confirmed. */
  readonly maxStaleMilliseconds: number;
  /**
   * Verifies the meta record, which describes the whole store, and throws if it could be forged. Null or omitted: the
   * record is not checked.
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
 * Decides whether a gateway is allowed to serve requests, from its cache or by reading Redis. The decision follows from
 * the results of the heartbeats. A result is valid only for the connections of its heartbeat, because new connections
 * may lead to another server.
 */
export class Standing {
  readonly state: StoreState;
  readonly lease: Lease;
  readonly acknowledgement: AcknowledgementState;
  /** Whether Redis replied to the newest heartbeat. If it did not, a read would only delay a request. */
  hasReplied = false;
  /** The error of the last failed heartbeat; null if no heartbeat has failed. */
  failure: string | null = null;
  /** When a heartbeat last succeeded, in monotonic milliseconds; initially, the time when this object was created. */
  goodAt = performance.now();
  readonly #options: StandingOptions;
  #distrusts = 0;
  /** The `epoch` for which a heartbeat last decided whether to trust the store; NaN: undecided. */
  #judged = NaN;
  /** Equal to `#judged` if the decision was to trust the store, otherwise NaN. */
  #believed = NaN;
  /**
   * Whether reads need no proof that this server is still the master: no other server can replace it, or the registry
   * is of an earlier release.
   */
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

  /** The highest `sinceKnownTrue` at which the gateway serves stale records. */
  get staleMilliseconds(): number {
    return Math.min(this.#options.maxStaleMilliseconds, this.lease.milliseconds);
  }

  /**
   * Whether the cache is fresh: a heartbeat trusts the store, invalidation messages arrive, and the server was proved
   * to be the master within the last 1.5 seconds.
   */
  get fresh(): boolean {
    return (
      this.isBelieved &&
      this.#options.link.connected &&
      this.sinceKnownTrue <= Math.min(freshMilliseconds, this.lease.milliseconds)
    );
  }

  /**
   * The generation of the last trusted records; empty before any were trusted. A generation is one unbroken history of
   * changes.
   */
  get generation(): string {
    return this.state.generation ?? '';
  }

  /** The current `epoch` if a heartbeat trusts the store and the gateway is allowed to read it; otherwise null. */
  get proof(): number | null {
    const epoch = this.epoch;
    return this.#believed === epoch && this.#whyNotAsked() === null ? epoch : null;
  }

  /**
   * The emptied store, while the registry refills it. The gateway queries the registry for records that this store
   * lacks. Null if no store is being refilled, or if this gateway cannot read the store. Also null if another server
   * could take over, because reads during the refill do not verify that the server is still the master.
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
    // A registry of an earlier release confirms changes without waiting for a gateway that distrusts the store. The
    // gateway's cached records may then be outdated, so it must refuse requests.
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
   * Whether the gateway is allowed to read records from a trusted server now. The server must be proved to be the
   * master, unless no other server can replace it. A server that refuses this gateway's acknowledgements of changes for
   * too long must not be read.
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
   * Whether a request should wait for the next heartbeat, because that heartbeat is likely to succeed. True in two
   * cases:
   * 1. No heartbeat has decided about the current connections. But they are open, or a heartbeat succeeded recently.
   * 2. A heartbeat has decided. The newest heartbeat got no reply, but a heartbeat succeeded recently.
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
   * Withdraws a decision to distrust the store, because the running heartbeat could trust it again. Requests then wait
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
   * Decides whether to trust the state that was read from the store. The decision depends on the generation in which
   * the registry has enrolled this gateway. Parameters and result are those of `StoreState.judge`.
   */
  judgeState(meta: string | null, newest: string | null, servers: RecordsLink['servers']): BelievedState | null {
    return this.state.judge(meta, newest, servers, this.state.isFormer ? null : this.lease.generation);
  }

  /**
   * Makes a trusted state the current one. Calls `onNotice` once if the registry may not have compared the server with
   * its database.
   */
  adopt(found: BelievedState): void {
    // An earlier generation means that this server is a former master. The proofs so far concern the new master, so
    // they must not count for this server.
    if (found.generation < this.generation) this.lease.discardProofs();
    this.state.adopt(found);
    const notice = this.state.notNamed;
    if (notice !== null && this.#notice === null) this.#options.onNotice(notice);
    this.#notice = notice;
    this.#last = found;
    this.#cannotFailOver = found.replicas === null || this.#options.link.witness(found.replicas) === 'none';
  }

  /**
   * Returns why a trusted server must not be read, for example because nothing proves that it is the master; null if it
   * can be read.
   */
  #whyNotAsked(): string | null {
    if (this.acknowledgement.reason !== null) return this.acknowledgement.reason;
    const { enrolled, milliseconds, sinceSure } = this.lease;
    if (this.#cannotFailOver || sinceSure <= (enrolled ? milliseconds : freshMilliseconds)) return null;
    const { refusal } = this.acknowledgement;
    return refusal === null
      ? 'cannot verify that this Redis server is still the master: the registry, the sentinels and the replicas do not confirm it'
      : `cannot verify that this Redis server is still the master: the registry, the sentinels and the replicas do not confirm it, and the server rejects the writes of this gateway (${refusal}); fix the cause of the rejected writes`;
  }
}

/**
 * Tracks whether Redis refuses this gateway's acknowledgements, which tell the registry what changes the gateway has
 * applied. Once the last acknowledgement has expired, the registry confirms changes without waiting for this gateway. A
 * server that refuses writes with READONLY or NOREPLICAS may have been replaced by a server on which keys are revoked.
 * So the gateway stops deciding requests if these refusals last too long. A server that is full or cannot save is still
 * used: it refuses the registry's writes too, so no change is confirmed.
 */
export class AcknowledgementState {
  readonly #clock: Clock;
  readonly #lifetimeMilliseconds: number;
  #put = { wall: -Infinity, monotonic: -Infinity };
  #isRefused = false;
  /** The error reply to the newest acknowledgement; null if Redis accepted the newest acknowledgement. */
  refusal: string | null = null;

  /**
   * @param lifetimeMilliseconds how long the gateway is allowed to decide requests while Redis refuses its
   * acknowledgements, counted from the last acknowledgement that Redis accepted
   */
  constructor(clock: Clock, lifetimeMilliseconds: number) {
    this.#clock = clock;
    this.#lifetimeMilliseconds = lifetimeMilliseconds;
  }

  /** Why the gateway must refuse all requests; null if it is allowed to decide requests. */
  get reason(): string | null {
    if (!this.#isRefused) return null;
    const age = Math.max(this.#clock.now() - this.#put.wall, performance.now() - this.#put.monotonic);
    return age > this.#lifetimeMilliseconds
      ? 'Redis rejects the acknowledgements of this gateway (READONLY or NOREPLICAS), so another server may be the master'
      : null;
  }

  /**
   * Whether a server refused the newest acknowledgement with READONLY or NOREPLICAS. If so, another server may have
   * replaced that server.
   */
  get isRefused(): boolean {
    return this.#isRefused;
  }

  /**
   * Records a successful write of an acknowledgement.
   * @param began a time before the write, on both clocks
   */
  put(began: { readonly wall: number; readonly monotonic: number }): void {
    this.#put = began;
    [this.#isRefused, this.refusal] = [false, null];
  }

  /** Records that the write of an acknowledgement failed. */
  failed(error: unknown): void {
    if (!(error instanceof Error) || error.name !== 'ReplyError') return; // a missing reply proves nothing
    // Only READONLY and NOREPLICAS show that another server may have replaced this one.
    [this.#isRefused, this.refusal] = [refusesWrites.test(error.message), error.message];
  }
}
