import type { Clock } from '../../gateway/ports.js';

/** A server that is full or cannot save refuses the registry as well, so that no change is confirmed meanwhile. */
const refusesEverybody = /^(?:OOM|MISCONF) /;

/**
 * Whether the registry may still wait for this gateway. An acknowledgement ends by itself, and nobody waits for a gateway
 * that has none: a server that answers but takes none may have been replaced by another one, where keys are revoked.
 */
export class Acknowledgement {
  readonly #clock: Clock;
  readonly #lifetimeMilliseconds: number;
  #put = { wall: -Infinity, monotonic: -Infinity };
  #refusedBy: 'nobody' | 'this server' | 'a full server' = 'nobody';

  /** @param lifetimeMilliseconds how long after it began to be put nothing may be decided without another one */
  constructor(clock: Clock, lifetimeMilliseconds: number) {
    this.#clock = clock;
    this.#lifetimeMilliseconds = lifetimeMilliseconds;
  }

  /** Whether nothing may be decided any more. */
  get hasEnded(): boolean {
    if (this.#refusedBy === 'a full server') return false;
    const age = Math.max(this.#clock.now() - this.#put.wall, performance.now() - this.#put.monotonic);
    return age > this.#lifetimeMilliseconds;
  }

  /** Why nothing may be decided; null while something may, or is tried to. */
  get reason(): string | null {
    return this.#refusedBy !== 'nobody' && this.hasEnded ? 'the store takes no acknowledgements' : null;
  }

  /** Takes in that it was put. @param began before that */
  put(began: { readonly wall: number; readonly monotonic: number }): void {
    this.#put = began;
    this.#refusedBy = 'nobody';
  }

  /** Takes in that it could not be put. */
  failed(error: unknown): void {
    const isFull = error instanceof Error && refusesEverybody.test(error.message);
    this.#refusedBy = isFull ? 'a full server' : 'this server';
  }
}
