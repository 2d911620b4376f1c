import { closeSync, constants, fstatSync, openSync, readSync, statfs, type Stats, statSync } from 'node:fs';
import path from 'node:path';
import type { Predecessor } from './chain.js';

/** How a log is opened: without waiting for the reader of a FIFO, which may never come. */
export const appending = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK;

/** Tells whether a file grows by more than one process appends to it. */
export class FileGrowth {
  /** What was in the file before anything of this process was. */
  #before: number;

  constructor(size: number) {
    this.#before = size;
  }

  /**
   * Looks at the file's size. A file that is shorter than it must be was cut (`copytruncate`), and is what it is now.
   * @param written what of this process was in the file when its size was asked for
   * @param handed what may have been in it when the answer came
   * @returns how many bytes in it are another's, each told once; never more than there are
   */
  foreignBytes(size: number, written: number, handed: number): number {
    if (size < this.#before + written) this.#before = size - written;
    const foreign = Math.max(0, size - this.#before - handed);
    this.#before += foreign;
    return foreign;
  }
}

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

/** A log cannot be kept where lines do not stay. */
export class NoLogFile extends Error {
  constructor(found: Pick<Stats, 'isFIFO' | 'isSocket'>) {
    const what = found.isFIFO() ? 'a FIFO' : found.isSocket() ? 'a socket' : 'a device';
    super(`it is ${what}, and has to be a file: lines would not stay there`);
    this.name = 'NoLogFile';
  }
}

/** @throws NoLogFile where something has the name that is neither a file nor, as opening it tells as well, a directory */
export function requireLogFile(file: string): void {
  const found = statSync(file, { throwIfNoEntry: false });
  if (found !== undefined && !found.isFile() && !found.isDirectory()) throw new NoLogFile(found);
}

/** Longer than any line: each of its few values is cut. */
const tailBytes = 256 * 1024;
const lineEnd = 0x0a;

const sealedLine =
  /^\{"service":\{"ephemeral_id":"([0-9A-Z]{26})"[,}].*,"sequence":(\d{1,15}),"hash":"([0-9a-f]{64})"\}\}$/;

/** How a file ends to which lines are to be appended. */
interface FileEnd {
  /** Null where there is no file, or nothing in it. */
  readonly predecessor: Predecessor | null;
  /** Whether something stands behind the last line end. */
  readonly isOpen: boolean;
}

/**
 * Reads the end of a file that is to be appended to.
 * @throws the file system's error when there is a file that cannot be read
 */
export function readFileEnd(file: string): FileEnd {
  const tail = readTail(file);
  if (tail.length === 0) return { predecessor: null, isOpen: false };
  const lines = tail.toString('utf8').split('\n');
  const rest = lines.pop() ?? '';
  const isOpen = rest !== '';
  // A process may be killed between the last byte of a line and its line end.
  const isWhole = sealedLine.test(rest);
  const [, id = null, sequence = null, hash = null] = sealedLine.exec(isWhole ? rest : (lines.at(-1) ?? '')) ?? [];
  const torn = isWhole ? 0 : tail.length - tail.lastIndexOf(lineEnd) - 1;
  return { predecessor: { id, sequence: sequence === null ? null : Number(sequence), hash, torn }, isOpen };
}

function readTail(file: string): Buffer {
  let descriptor: number;
  try {
    descriptor = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return Buffer.alloc(0);
    throw error;
  }
  try {
    const stats = fstatSync(descriptor);
    // A pipe or a device has no end that could be read.
    if (!stats.isFile()) return Buffer.alloc(0);
    const length = Math.min(stats.size, tailBytes);
    const tail = Buffer.alloc(length);
    return tail.subarray(0, readSync(descriptor, tail, 0, length, stats.size - length));
  } finally {
    closeSync(descriptor);
  }
}
