import { closeSync, constants, fstatSync, openSync, readSync, statfs, type Stats, statSync } from 'node:fs';
import path from 'node:path';
import { runPattern, sizePattern } from '../evidence/checkpoint.js';
import type { Predecessor } from './chain.js';

/** Flags for opening a log file. Without O_NONBLOCK, opening a FIFO blocks until it has a reader, perhaps forever. */
export const appending = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK;

/** Detects whether other processes append to the log file. */
export class FileGrowth {
  /**
   * Bytes in the file that this process did not write: the size of the file at opening, and the bytes that other
   * processes added later.
   */
  #before: number;

  constructor(size: number) {
    this.#before = size;
  }

  /**
   * Compares the file's size with the bytes that this process has written. A file shorter than expected was truncated,
   * for example by `copytruncate` of logrotate. In this case, counting starts again from the current size.
   * @param written bytes that this process had written to the file when the size was requested
   * @param handed bytes that this process could have written to the file by the time the size was returned
   * @returns how many new bytes of other processes were found; if in doubt, too few
   */
  foreignBytes(size: number, written: number, handed: number): number {
    if (size < this.#before + written) this.#before = size - written;
    const foreign = Math.max(0, size - this.#before - handed);
    this.#before += foreign;
    return foreign;
  }
}

/**
 * Free space must exceed the reserve by 10 % before it counts as sufficient again. Otherwise a few bytes could toggle
 * the state repeatedly.
 */
const hysteresisFactor = 1.1;

/** Checks whether a file system has more free space than the reserve. */
export class FreeSpace {
  readonly #directory: string;
  readonly #reserveBytes: number;
  readonly #onChange: (hasOnlyReserve: boolean) => void;
  readonly #read: typeof readFreeBytes;
  #isChecking = false;
  hasOnlyReserve = false;

  /** @param reserveBytes the reserve in bytes; 0 disables the check */
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
    this.check();
  }

  /** Starts a check without waiting for its result. If the check fails, the state stays unchanged. */
  check(): void {
    if (this.#isChecking || this.#reserveBytes === 0) return;
    this.#isChecking = true;
    this.#read(this.#directory, (freeBytes) => {
      this.#isChecking = false;
      if (freeBytes === null) return;
      const enough = this.#reserveBytes * (this.hasOnlyReserve ? hysteresisFactor : 1);
      const hasOnlyReserve = freeBytes < enough;
      if (hasOnlyReserve === this.hasOnlyReserve) return;
      this.hasOnlyReserve = hasOnlyReserve;
      this.#onChange(hasOnlyReserve);
    });
  }
}

/**
 * Reads how many more bytes an unprivileged process can write to the file system of a directory; null if this is
 * unknown.
 */
export function readFreeBytes(directory: string, callback: (freeBytes: number | null) => void): void {
  statfs(directory, (error, found) => {
    callback(error === null ? found.bavail * found.bsize : null);
  });
}

/** Error for a log file that stores no lines, because it is a FIFO, a socket or a device instead of a regular file. */
export class NotARegularFile extends Error {
  constructor(found: Pick<Stats, 'isFIFO' | 'isSocket'>) {
    const what = found.isFIFO() ? 'a FIFO' : found.isSocket() ? 'a socket' : 'a device';
    super(`it is ${what} and must be a regular file, because ${what} does not store lines`);
    this.name = 'NotARegularFile';
  }
}

/**
 * Checks that lines written to this path would be stored: the path must be unused or name a regular file. Also accepts
 * a directory, because the attempt to open it fails anyway.
 * @throws NotARegularFile for a FIFO, a socket or a device
 */
export function requireLogFile(file: string): void {
  const found = statSync(file, { throwIfNoEntry: false });
  if (found !== undefined && !found.isFile() && !found.isDirectory()) throw new NotARegularFile(found);
}

/**
 * Returns how many names an open file has: 0 if it was removed. Null if the file cannot be accessed any more: on NFS, a
 * descriptor can become stale (ESTALE) after a failover of the server.
 */
export function countNames(descriptor: number): number | null {
  try {
    return fstatSync(descriptor).nlink;
  } catch {
    return null;
  }
}

/**
 * Number of bytes to read from the end of a file. Every log line is shorter, because each of its values has a limited
 * length.
 */
const tailBytes = 256 * 1024;
const lineEnd = 0x0a;

/**
 * Matches a line of a hash chain. The first signed checkpoint of the next chain contains the chain id and the number of
 * the file's last line. So this pattern accepts only ids and numbers that are valid in a checkpoint. Otherwise an
 * attacker could append a line that makes the checkpoint invalid.
 */
const sealedLine = new RegExp(
  `^\\{"service":\\{"ephemeral_id":"(${runPattern})"[,}].*,"sequence":(${sizePattern}),"hash":"([0-9a-f]{64})"\\}\\}$`,
);

/** The end of a file to which lines will be appended. */
interface FileEnd {
  /** The last line of the file; null if the file is missing or empty. */
  readonly predecessor: Predecessor | null;
  /** Whether the last line of the file has no line end. */
  readonly isOpen: boolean;
}

/**
 * Reads the end of a file before lines are appended to it.
 * @throws the error of the file system if the file exists but cannot be read
 */
export function readLogEnd(file: string): FileEnd {
  const tail = readTail(file);
  if (tail.length === 0) return { predecessor: null, isOpen: false };
  const lines = tail.toString('utf8').split('\n');
  const rest = lines.pop() ?? '';
  const isOpen = rest !== '';
  // A process can be killed after it wrote a complete line without its line end.
  const isWhole = sealedLine.test(rest);
  const [, id = null, sequence = null, hash = null] = sealedLine.exec(isWhole ? rest : (lines.at(-1) ?? '')) ?? [];
  const torn = isWhole ? 0 : tail.length - tail.lastIndexOf(lineEnd) - 1;
  return { predecessor: { id, sequence: sequence === null ? null : Number(sequence), hash, torn }, isOpen };
}

/** Whether the last line of a file is incomplete, so a further line would continue it. False if this is unknown. */
export function endsWithinLine(file: string): boolean {
  try {
    return readLogEnd(file).isOpen;
  } catch {
    return false;
  }
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
    // A pipe or a device has no stored lines.
    if (!stats.isFile()) return Buffer.alloc(0);
    const length = Math.min(stats.size, tailBytes);
    const tail = Buffer.alloc(length);
    return tail.subarray(0, readSync(descriptor, tail, 0, length, stats.size - length));
  } finally {
    closeSync(descriptor);
  }
}
