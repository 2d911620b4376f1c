import type { Clock } from '../../../gateway/ports.js';
import type { Grant } from '../gateway-records.js';

/** A moment by two clocks: the wall's goes on while the machine sleeps, and the other one is set by nobody. */
export interface Moment {
  readonly wall: number;
  readonly monotonic: number;
}

/** Three beats: a process that was stopped for longer must not believe what it holds before it has caught up. */
export const freshMilliseconds = 1_500;
/** What the registry waits longer than a gateway serves. */
const marginMilliseconds = 1_000;
const longestLifetimeMilliseconds = 86_400_000;
/** The moments of beats that are kept, and how far apart: a beat in between counts as the one before. */
const mostBeats = 1_000;
const betweenBeatsMilliseconds = 100;

/**
 * A gateway's leave to use its memory. The registry gives it with a grant, and from then on waits for this gateway until its
 * lifetime is over: so it ends by the gateway's own clock, a second before that.
 */
export class Lease {
  /** How long the registry has to wait for this gateway after it was last sure of its server. */
  readonly lifetimeMilliseconds: number;
  readonly #clock: Clock;
  readonly #ownMilliseconds: number;
  #milliseconds: number;
  #sureAt: Moment = { wall: -Infinity, monotonic: -Infinity };
  #echoedAt: Moment = this.#sureAt;
  #enrolled = false;
  #generation: string | null = null;
  #count = 0;
  #vouchedBeat = -1;
  #asks = false;
  #beats: { readonly beat: number; readonly at: Moment }[] = [];

  /** @param maxStaleMilliseconds how long the gateway wants to serve what can no longer be known to be true */
  constructor(clock: Clock, maxStaleMilliseconds: number) {
    this.#clock = clock;
    // What is fresh is served as well, though nothing stale be.
    const wanted = Math.max(maxStaleMilliseconds, freshMilliseconds) + marginMilliseconds;
    this.lifetimeMilliseconds = Math.min(wanted, longestLifetimeMilliseconds);
    this.#ownMilliseconds = this.lifetimeMilliseconds - marginMilliseconds;
    this.#milliseconds = this.#ownMilliseconds;
  }

  /** Whether the registry waits for this gateway, so that it may hold records. */
  get enrolled(): boolean {
    return this.#enrolled;
  }

  /** The history in which it is enrolled; null while it is not. */
  get generation(): string | null {
    return this.#enrolled ? this.#generation : null;
  }

  /** How long after it was last sure of its server the gateway may still decide. */
  get milliseconds(): number {
    return this.#milliseconds;
  }

  /** Milliseconds since the gateway was last sure that its server is the one. By a clock that was set back that was never. */
  get sinceSure(): number {
    return this.#since(this.#sureAt);
  }

  /** Milliseconds since the beginning of the newest beat that the registry is known to have seen. */
  get sinceEchoed(): number {
    return this.#enrolled ? this.#since(this.#echoedAt) : Infinity;
  }

  /** How many beats have begun. */
  get beats(): number {
    return this.#count;
  }

  /** The newest beat after which the registry knew that no record was missing; -1 for none in this generation. */
  get vouchedBeat(): number {
    return this.#vouchedBeat;
  }

  /** Whether the registry that enrolled this gateway answers when it is asked for a record. */
  get asks(): boolean {
    return this.#asks;
  }

  /** Notes that a beat begins, and which one it is. */
  begin(): { readonly beat: number; readonly at: Moment } {
    this.#count += 1;
    const begun = { beat: this.#count, at: { wall: this.#clock.now(), monotonic: performance.now() } };
    const apart = begun.at.monotonic - (this.#beats.at(-1)?.at.monotonic ?? -Infinity);
    if (apart >= betweenBeatsMilliseconds) this.#beats.push(begun);
    if (this.#beats.length > mostBeats) this.#beats.shift();
    return begun;
  }

  /** Whether it had ended by now: the registry waits no more. */
  get isOver(): boolean {
    return this.#enrolled && this.sinceSure > this.#milliseconds;
  }

  end(): void {
    this.#enrolled = false;
  }

  /**
   * Takes in what a beat found of the grant.
   * @param generation that of the store that was believed
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
    // A grant that was read late may be that of a gateway for which nobody waits any more.
    if (!this.#enrolled && (seen === undefined || this.#since(seen.at) > milliseconds)) return;
    [this.#enrolled, this.#generation, this.#milliseconds] = [true, generation, milliseconds];
    this.#asks = grant.compared !== undefined;
    if (grant.compared === true) this.#vouchedBeat = grant.beat;
    if (seen === undefined) return;
    this.#echoedAt = seen.at;
    this.sure(seen.at);
  }

  /** Holds without a grant, as the registry's former release has it: that one waits for an acknowledgement to expire. */
  assume(generation: string): void {
    [this.#enrolled, this.#generation, this.#milliseconds] = [true, generation, this.#ownMilliseconds];
  }

  /** Something has shown that the server was the one at this moment, or later. */
  sure(at: Moment): void {
    if (at.monotonic > this.#sureAt.monotonic) this.#sureAt = at;
  }

  #since({ wall, monotonic }: Moment): number {
    const since = this.#clock.now() - wall;
    return since < 0 ? Infinity : Math.max(since, performance.now() - monotonic);
  }
}
