import type { Clock } from '../../../gateway/ports.js';
import type { Grant } from '../gateway-records.js';

/**
 * The same time on two clocks, in milliseconds. The wall clock continues while the machine sleeps; the monotonic clock
 * cannot be set.
 */
export interface ClockReading {
  readonly wall: number;
  readonly monotonic: number;
}

/**
 * How long cached records stay fresh after a heartbeat: three times the interval of heartbeats. A process that was
 * stopped for longer must first handle pending invalidations.
 */
export const freshMilliseconds = 1_500;
/** How much longer the registry waits for a gateway than that gateway serves stale records. */
const marginMilliseconds = 1_000;
const longestLifetimeMilliseconds = 86_400_000;
/** The maximum number of stored start times of heartbeats. */
const mostBeats = 1_000;
/**
 * The minimum time between two stored start times. If a heartbeat's start time is not stored, the stored time of the
 * nearest earlier heartbeat is used instead.
 */
const betweenBeatsMilliseconds = 100;
const longAgo: ClockReading = { wall: -Infinity, monotonic: -Infinity };

/**
 * A gateway's permission to use its cache. The registry gives the permission with a grant. Before the registry confirms
 * a change, it waits for this gateway for up to the lease's lifetime. On the gateway's own clock, the lease ends one
 * second earlier.
 */
export class Lease {
  /**
   * How long the registry must wait for this gateway, counted from the last proof that the Redis server of this gateway
   * is the master.
   */
  readonly lifetimeMilliseconds: number;
  readonly #clock: Clock;
  readonly #ownMilliseconds: number;
  #milliseconds: number;
  #sureAt = longAgo;
  #echoedAt = longAgo;
  #enrolled = false;
  #generation: string | null = null;
  #count = 0;
  #vouchedBeat = -1;
  #asks = false;
  #beats: { readonly beat: number; readonly at: ClockReading }[] = [];

  /**
   * @param maxStaleMilliseconds how long the gateway is allowed to serve cached records that Redis has not confirmed
   */
  constructor(clock: Clock, maxStaleMilliseconds: number) {
    this.#clock = clock;
    // The lease covers fresh records too. So it has a minimum length even if `maxStaleMilliseconds` is 0, which allows
    // no stale records.
    const wanted = Math.max(maxStaleMilliseconds, freshMilliseconds) + marginMilliseconds;
    this.lifetimeMilliseconds = Math.min(wanted, longestLifetimeMilliseconds);
    this.#ownMilliseconds = this.lifetimeMilliseconds - marginMilliseconds;
    this.#milliseconds = this.#ownMilliseconds;
  }

  /**
   * Whether the registry has enrolled this gateway. The registry keeps a list of enrolled gateways, and waits for each
   * of them before it confirms a change. Only an enrolled gateway is allowed to cache records.
   */
  get enrolled(): boolean {
    return this.#enrolled;
  }

  /**
   * The generation in which the registry enrolled the gateway; null while the gateway is not enrolled. A generation is
   * one unbroken history of changes.
   */
  get generation(): string | null {
    return this.#enrolled ? this.#generation : null;
  }

  /** How long the gateway is allowed to use its cache after the last proof that its Redis server is the master. */
  get milliseconds(): number {
    return this.#milliseconds;
  }

  /**
   * Milliseconds since the last proof that this server is the master. Infinity without a proof, or if the wall clock
   * was set back.
   */
  get sinceSure(): number {
    return this.since(this.#sureAt);
  }

  /**
   * Milliseconds since the start of the newest heartbeat that the registry has confirmed in a grant. Infinity while
   * this gateway is not enrolled.
   */
  get sinceEchoed(): number {
    return this.#enrolled ? this.since(this.#echoedAt) : Infinity;
  }

  /** Number of heartbeats that have begun. */
  get beats(): number {
    return this.#count;
  }

  /**
   * The number of the newest heartbeat for which the registry confirmed that the store has every record. -1 if there is
   * no such heartbeat in this generation.
   */
  get vouchedBeat(): number {
    return this.#vouchedBeat;
  }

  /** Whether the registry that enrolled this gateway replies to queries for a missing record. */
  get asks(): boolean {
    return this.#asks;
  }

  /** Records the start of a heartbeat. Returns the number of the heartbeat and its start time. */
  begin(): { readonly beat: number; readonly at: ClockReading } {
    this.#count += 1;
    const begun = { beat: this.#count, at: this.now() };
    const apart = begun.at.monotonic - (this.#beats.at(-1)?.at.monotonic ?? -Infinity);
    if (apart >= betweenBeatsMilliseconds) this.#beats.push(begun);
    if (this.#beats.length > mostBeats) this.#beats.shift();
    return begun;
  }

  /** Returns the current time on both clocks. */
  now(): ClockReading {
    return { wall: this.#clock.now(), monotonic: performance.now() };
  }

  /** Returns the milliseconds since a reading of the clocks; Infinity if the wall clock was set back. */
  since({ wall, monotonic }: ClockReading): number {
    const since = this.#clock.now() - wall;
    return since < 0 ? Infinity : Math.max(since, performance.now() - monotonic);
  }

  /**
   * Whether the lease has run out. One second later, the registry confirms changes without waiting for this gateway.
   */
  get isOver(): boolean {
    return this.#enrolled && this.sinceSure > this.#milliseconds;
  }

  end(): void {
    this.#enrolled = false;
  }

  /**
   * Applies the grant that a heartbeat has read. Without a valid grant of this generation, ends the lease.
   * @param grant null: no valid grant
   * @param generation the generation that the store has now
   */
  granted(grant: Grant | null, generation: string): void {
    if (this.#generation !== generation) {
      this.#vouchedBeat = -1;
      this.end();
    }
    if (grant?.generation !== generation || grant.beat > this.#count) {
      this.end();
      return;
    }
    const milliseconds = Math.min(this.#ownMilliseconds, grant.lifetimeMilliseconds - marginMilliseconds);
    const seen = this.#beats.findLast(({ beat }) => beat <= grant.beat);
    // Ignore a grant that was read too late. The registry may already have removed this gateway and stopped waiting for
    // it.
    if (!this.#enrolled && (seen === undefined || this.since(seen.at) > milliseconds)) return;
    [this.#enrolled, this.#generation, this.#milliseconds] = [true, generation, milliseconds];
    this.#asks = grant.compared !== undefined;
    if (grant.compared === true) this.#vouchedBeat = grant.beat;
    if (seen === undefined) return;
    this.#echoedAt = seen.at;
    this.sure(seen.at);
  }

  /**
   * Allows the gateway to use its cache without a grant. A registry of an earlier release writes no grants. Instead,
   * that registry waits for a gateway until the gateway's acknowledgement of changes expires.
   */
  assume(generation: string): void {
    [this.#enrolled, this.#generation, this.#milliseconds] = [true, generation, this.#ownMilliseconds];
  }

  /** Records a proof that this server was the master at this time or later. */
  sure(at: ClockReading): void {
    if (at.monotonic > this.#sureAt.monotonic) this.#sureAt = at;
  }

  /**
   * Discards all proofs, because they concern the server of a later generation. Also discards the heartbeats, because
   * an old grant on this server could name one of them. Must be called when the store returns to an earlier generation.
   */
  discardProofs(): void {
    [this.#sureAt, this.#echoedAt, this.#beats] = [longAgo, longAgo, []];
  }
}
