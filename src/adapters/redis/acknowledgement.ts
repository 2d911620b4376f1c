import type { Clock } from '../../gateway/ports.js';
import { refusesWrites } from './connection.js';

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
