import { statfs } from 'node:fs';
import path from 'node:path';

/** Beyond the reserve, so that a few bytes more or less do not begin and end it again and again. */
const clearlyMore = 1.1;

/** Looks at whether a file system has more room than is reserved. */
export class FreeSpace {
  readonly #directory: string;
  readonly #reserveBytes: number;
  readonly #onChange: (hasOnlyReserve: boolean) => void;
  readonly #read: typeof readFreeBytes;
  #isLooking = false;
  hasOnlyReserve = false;

  /** @param reserveBytes 0: nothing is reserved */
  constructor(
    file: string,
    reserveBytes: number,
    onChange: (hasOnlyReserve: boolean) => void,
    read: typeof readFreeBytes = readFreeBytes,
  ) {
    this.#directory = path.dirname(file);
    this.#reserveBytes = reserveBytes;
    this.#onChange = onChange;
    this.#read = read;
    this.look();
  }

  /** Looks, and does not wait for the answer. Where there is none, it stays as it was. */
  look(): void {
    if (this.#isLooking || this.#reserveBytes === 0) return;
    this.#isLooking = true;
    this.#read(this.#directory, (freeBytes) => {
      this.#isLooking = false;
      if (freeBytes === null) return;
      const enough = this.#reserveBytes * (this.hasOnlyReserve ? clearlyMore : 1);
      const hasOnlyReserve = freeBytes < enough;
      if (hasOnlyReserve === this.hasOnlyReserve) return;
      this.hasOnlyReserve = hasOnlyReserve;
      this.#onChange(hasOnlyReserve);
    });
  }
}

/** The bytes that a process without privileges may still write below a directory; null where nobody says. */
export function readFreeBytes(directory: string, callback: (freeBytes: number | null) => void): void {
  statfs(directory, (error, found) => {
    callback(error === null ? found.bavail * found.bsize : null);
  });
}
