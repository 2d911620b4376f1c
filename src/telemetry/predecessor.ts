import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import type { Predecessor } from './chain.js';

/** Longer than any line: each of its few values is cut. */
const tailBytes = 256 * 1024;
const lineEnd = 0x0a;

const sealedLine =
  /^\{"service":\{"ephemeral_id":"([0-9A-Z]{26})"\},.*,"sequence":(\d{1,15}),"hash":"([0-9a-f]{64})"\}\}$/;

/** How a file ends to which lines are to be appended. */
export interface FileEnd {
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
    descriptor = openSync(file, 'r');
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
