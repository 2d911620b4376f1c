import { setTimeout as wait } from 'node:timers/promises';

/** For how long work is done before requests have their turn. */
const sliceMilliseconds = 0.5;
const shortestPauseMilliseconds = 1;
const longestPauseMilliseconds = 100;
/** A pause that ends later than this shows that the process is busy: the next ones are longer by so many times that. */
const lateMilliseconds = 1.5;
const pausePerLateness = 4;

/** Spreads work in the background so that requests beside it are not held up. */
export class Pace {
  #pauseMilliseconds = shortestPauseMilliseconds;
  #sliceBegan = 0;

  /** Begins a piece of work. */
  begin(): void {
    this.#sliceBegan = performance.now();
  }

  /** Whether that has gone on for long enough. */
  get isOver(): boolean {
    return performance.now() - this.#sliceBegan > sliceMilliseconds;
  }

  /** Lets requests have their turn, for the longer the later that ends; after it the next piece of work begins. */
  async pause(): Promise<void> {
    const began = performance.now();
    await rest(this.#pauseMilliseconds);
    this.begin();
    const lateness = this.#sliceBegan - began - this.#pauseMilliseconds;
    const next = lateness > lateMilliseconds ? lateness * pausePerLateness : this.#pauseMilliseconds / 2;
    this.#pauseMilliseconds = Math.min(longestPauseMilliseconds, Math.max(shortestPauseMilliseconds, next));
  }
}

/** Waits, and keeps no process from ending. */
export async function rest(milliseconds: number): Promise<void> {
  await wait(milliseconds, undefined, { ref: false });
}
