import type { Clock } from '../../../gateway/ports.js';
import type { Grant } from '../gateway-records.js';

/** A time on two clocks. Wall time continues while the machine sleeps; monotonic time cannot be set. */
export interface ClockReading {
  readonly wall: number;
  readonly monotonic: number;
}

/** Three beats. A process that was stopped for longer must catch up before it trusts its cache. */
export const freshMilliseconds = 1_500;
/** The registry waits this much longer than a gateway serves stale records. */
const marginMilliseconds = 1_000;
const longestLifetimeMilliseconds = 86_400_000;
/** How many beats' start times are stored, and how far apart. A beat in between counts as the one before it. */
const mostBeats = 1_000;
const betweenBeatsMilliseconds = 100;

/**
 * A gateway's permission to use its cache.
 * The registry gives the lease with a grant, and then waits for this gateway during the lease's lifetime. The lease
 * therefore ends one second earlier on the gateway's own clock.
 */
export class Lease {
  /** How long the registry must wait for this gateway after it was last sure of its server. */
  readonly lifetimeMilliseconds: number;
  readonly #clock: Clock;
  readonly #ownMilliseconds: number;
  #milliseconds: number;
  #sureAt: ClockReading = { wall: -Infinity, monotonic: -Infinity };
  #echoedAt: ClockReading = this.#sureAt;
  #enrolled = false;
  #generation: string | null = null;
  #count = 0;
  #vouchedBeat = -1;
  #asks = false;
  #beats: { readonly beat: number; readonly at: ClockReading }[] = [];

  /** @param maxStaleMilliseconds how long the gateway wants to serve records that it cannot check */
  constructor(clock: Clock, maxStaleMilliseconds: number) {
    this.#clock = clock;
    // Fresh records are served even where stale ones are not allowed (0).
    const wanted = Math.max(maxStaleMilliseconds, freshMilliseconds) + marginMilliseconds;
    this.lifetimeMilliseconds = Math.min(wanted, longestLifetimeMilliseconds);
    this.#ownMilliseconds = this.lifetimeMilliseconds - marginMilliseconds;
    this.#milliseconds = this.#ownMilliseconds;
  }

  /** Whether the registry waits for this gateway, so that it may cache records. */
  get enrolled(): boolean {
    return this.#enrolled;
  }

  /** The generation in which the gateway is enrolled; null while it is not enrolled. */
  get generation(): string | null {
    return this.#enrolled ? this.#generation : null;
  }

  /** How long the gateway may still decide after it was last sure of its server. */
  get milliseconds(): number {
    return this.#milliseconds;
  }

  /**
   * Milliseconds since a witness last showed that this server is the master. Infinity if the wall clock was set back.
   */
  get sinceSure(): number {
    return this.#since(this.#sureAt);
  }

  /**
   * Milliseconds since the start of the newest beat that the registry is known to have seen; Infinity while not
   * enrolled.
   */
  get sinceEchoed(): number {
    return this.#enrolled ? this.#since(this.#echoedAt) : Infinity;
  }

  /** Number of beats begun. */
  get beats(): number {
    return this.#count;
  }

  /** The newest beat after which the registry knew that the store lacked no record; -1 for none in this generation. */
  get vouchedBeat(): number {
    return this.#vouchedBeat;
  }

  /** Whether the registry that enrolled this gateway replies to queries for a record. */
  get asks(): boolean {
    return this.#asks;
  }

  /** Records the start of a beat and returns its number. */
  begin(): { readonly beat: number; readonly at: ClockReading } {
    this.#count += 1;
    const begun = { beat: this.#count, at: this.now() };
    const apart = begun.at.monotonic - (this.#beats.at(-1)?.at.monotonic ?? -Infinity);
    if (apart >= betweenBeatsMilliseconds) this.#beats.push(begun);
    if (this.#beats.length > mostBeats) this.#beats.shift();
    return begun;
  }

  /** The present time on both clocks. */
  now(): ClockReading {
    return { wall: this.#clock.now(), monotonic: performance.now() };
  }

  /** Whether the lease has run out: the registry no longer waits for this gateway. */
  get isOver(): boolean {
    return this.#enrolled && this.sinceSure > this.#milliseconds;
  }

  end(): void {
    this.#enrolled = false;
  }

  /**
   * Applies the grant that a beat has read; null for no valid grant.
   * @param generation of the trusted store
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
    // A grant that is read late may belong to a gateway that the registry has already removed.
    if (!this.#enrolled && (seen === undefined || this.#since(seen.at) > milliseconds)) return;
    [this.#enrolled, this.#generation, this.#milliseconds] = [true, generation, milliseconds];
    this.#asks = grant.compared !== undefined;
    if (grant.compared === true) this.#vouchedBeat = grant.beat;
    if (seen === undefined) return;
    this.#echoedAt = seen.at;
    this.sure(seen.at);
  }

  /** Enrols without a grant, for an earlier release of the registry, which waits until an acknowledgement expires. */
  assume(generation: string): void {
    [this.#enrolled, this.#generation, this.#milliseconds] = [true, generation, this.#ownMilliseconds];
  }

  /** Records that a witness showed this server to be the master at this time or later. */
  sure(at: ClockReading): void {
    if (at.monotonic > this.#sureAt.monotonic) this.#sureAt = at;
  }

  #since({ wall, monotonic }: ClockReading): number {
    const since = this.#clock.now() - wall;
    return since < 0 ? Infinity : Math.max(since, performance.now() - monotonic);
  }
}
