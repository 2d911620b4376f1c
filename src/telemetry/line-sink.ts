import { closeSync, mkdirSync, openSync, write } from 'node:fs';
import path from 'node:path';
import { serialise } from './serialise.js';

/** Somewhere to append JSON lines to, without ever waiting for it. */
export interface LineSink {
  write(line: object): void;
  /** Why lines are not getting out, in words for an operator; null while they are. */
  problem(): string | null;
  /** Writes out what is still in memory, as far as that is possible within the time. */
  close(timeoutMilliseconds: number): Promise<void>;
}

/** What is held in memory at most while the destination is slow; beyond it lines are lost, and the sink says so. */
const maxHeldBytes = 16 * 1024 * 1024;
/** From here on the sink counts as not keeping up: there is still room for the lines of what is under way. */
const slowBytes = 8 * 1024 * 1024;
const retryMilliseconds = 1_000;

/**
 * Opens a sink of JSON lines.
 * @param destination `stdout`, or the path of a file to append to
 * @throws the file system's error when the file cannot be opened
 */
export function openLineSink(destination: string): LineSink {
  return new FileLineSink(destination === 'stdout' ? 1 : openFile(destination));
}

/** One write is under way at a time, so that lines keep their order; a failed one is tried again from where it stopped. */
class FileLineSink implements LineSink {
  readonly #descriptor: number;
  readonly #held: Buffer[] = [];
  #heldBytes = 0;
  #writing = false;
  #failure: string | null = null;
  #lost = 0;
  #onIdle: (() => void) | null = null;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  write(line: object): void {
    const bytes = Buffer.from(`${serialise(line)}\n`);
    if (this.#heldBytes + bytes.length > maxHeldBytes) {
      this.#lost += 1;
      return;
    }
    this.#held.push(bytes);
    this.#heldBytes += bytes.length;
    if (!this.#writing) this.#writeHeld();
  }

  problem(): string | null {
    const slow = this.#heldBytes > slowBytes ? `${this.#heldBytes} bytes wait to be written` : null;
    const problem = this.#failure ?? slow;
    return problem === null ? null : `${problem}; lines lost: ${this.#lost}`;
  }

  async close(timeoutMilliseconds: number): Promise<void> {
    await new Promise<void>((resolve) => {
      if (!this.#writing) {
        resolve();
        return;
      }
      const giveUp = setTimeout(resolve, timeoutMilliseconds);
      this.#onIdle = () => {
        clearTimeout(giveUp);
        resolve();
      };
    });
    if (this.#descriptor > 2 && !this.#writing) closeSync(this.#descriptor);
  }

  #writeHeld(): void {
    if (this.#held.length === 0) {
      this.#writing = false;
      this.#onIdle?.();
      return;
    }
    this.#writing = true;
    const bytes = this.#held.length === 1 && this.#held[0] !== undefined ? this.#held[0] : Buffer.concat(this.#held);
    this.#held.splice(0, Infinity, bytes);
    write(this.#descriptor, bytes, (error, written) => {
      this.#failure = error === null ? null : `writing fails: ${error.code ?? error.message}`;
      this.#heldBytes -= written;
      if (written > 0) this.#held[0] = bytes.subarray(written);
      if (this.#held[0]?.length === 0) this.#held.shift();
      if (error === null) this.#writeHeld();
      else this.#retryLater();
    });
  }

  #retryLater(): void {
    setTimeout(() => {
      this.#writeHeld();
    }, retryMilliseconds).unref();
  }
}

function openFile(file: string): number {
  mkdirSync(path.dirname(file), { recursive: true });
  return openSync(file, 'a', 0o640);
}
