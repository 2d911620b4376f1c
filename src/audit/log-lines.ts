import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { OperatorError } from '../config/operator-error.js';
import { fileProblemOf } from '../config/operator-file.js';

/** A line of a log as it stands in its file, and where. */
export interface RawLine {
  /** As it was named; `-` is standard input. */
  readonly file: string;
  /** Counted from 1. */
  readonly number: number;
  /** Without its line end; null where it is longer than any line of a log. */
  readonly bytes: Buffer | null;
  /** Whether a line end stands behind it. */
  readonly ended: boolean;
}

/** A file of a log cannot be read, or not to its end: the lines before that were given out. */
export class UnreadableLog extends OperatorError {}

const lineEnd = 0x0a;
/** No line is so long: each of its few values is cut. */
const maxLineBytes = 1024 * 1024;
const chunkBytes = 256 * 1024;
/** What unpacking fails of, by code: its own words speak of its parts. */
const unpackProblems: Readonly<Record<string, string>> = {
  Z_DATA_ERROR: 'it is damaged, or not packed by gzip at all',
  Z_BUF_ERROR: 'it ends too early: cut off, or not yet written to its end',
  REST_LEFT: 'a part of it is damaged, and what stands behind that was not unpacked',
};

/**
 * Reads files, one after the other, piece by piece: as many lines at a time as one piece has.
 * @param files paths, of which those that end in `.gz` are unpacked, or `-` for standard input
 * @throws UnreadableLog
 */
export async function* readLogLines(
  files: readonly string[],
  standardInput: Readable = process.stdin,
): AsyncGenerator<readonly RawLine[]> {
  for (const file of files) {
    const splitter = new LineSplitter(file);
    try {
      for await (const chunk of openLog(file, standardInput)) yield splitter.take(chunk as Buffer);
    } catch (error) {
      const name = file === '-' ? 'Standard input' : file;
      throw new UnreadableLog(`${name} cannot be read: ${reasonOf(error)}.`, { cause: error });
    }
    yield splitter.end();
  }
}

function openLog(file: string, standardInput: Readable): AsyncIterable<unknown> {
  if (file === '-') return standardInput;
  return file.endsWith('.gz') ? unpack(file) : createReadStream(file, { highWaterMark: chunkBytes });
}

async function* unpack(file: string): AsyncGenerator {
  const stream = createReadStream(file, { highWaterMark: chunkBytes });
  const unpacked = createGunzip();
  stream.once('error', (error) => unpacked.destroy(error));
  yield* stream.pipe(unpacked);
  // zlib takes a zero byte behind a member for padding, and stops without an error.
  if (unpacked.bytesWritten < (await stat(file)).size)
    throw Object.assign(new Error('a rest was left'), { code: 'REST_LEFT' });
}

function reasonOf(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return unpackProblems[code] ?? fileProblemOf(error);
}

class LineSplitter {
  readonly #file: string;
  #number = 0;
  #rest: Buffer[] = [];
  #restBytes = 0;

  constructor(file: string) {
    this.#file = file;
  }

  take(chunk: Buffer): RawLine[] {
    const lines: RawLine[] = [];
    let from = 0;
    for (let at = chunk.indexOf(lineEnd); at !== -1; at = chunk.indexOf(lineEnd, from)) {
      const piece = chunk.subarray(from, at);
      if (this.#restBytes > 0) this.#hold(piece);
      // Most lines stand in one piece.
      lines.push(
        this.#restBytes > 0 ? this.#rejoined(true) : this.#line(piece.length > maxLineBytes ? null : piece, true),
      );
      from = at + 1;
    }
    this.#hold(chunk.subarray(from));
    return lines;
  }

  /** What stands behind the last line end. */
  end(): RawLine[] {
    return this.#restBytes === 0 ? [] : [this.#rejoined(false)];
  }

  #hold(piece: Buffer): void {
    this.#restBytes += piece.length;
    if (this.#restBytes > maxLineBytes) this.#rest = [];
    else if (piece.length > 0) this.#rest.push(piece);
  }

  #rejoined(ended: boolean): RawLine {
    const bytes = this.#restBytes > maxLineBytes ? null : Buffer.concat(this.#rest);
    this.#rest = [];
    this.#restBytes = 0;
    return this.#line(bytes, ended);
  }

  #line(bytes: Buffer | null, ended: boolean): RawLine {
    this.#number += 1;
    return { file: this.#file, number: this.#number, bytes, ended };
  }
}
