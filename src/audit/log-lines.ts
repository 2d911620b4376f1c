import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { OperatorError } from '../config/operator-error.js';
import { fileProblemOf } from '../config/operator-file.js';

/** A line of a log file, and its position. */
export interface RawLine {
  /** The file name as given on the command line; `-` is standard input. */
  readonly file: string;
  /** The line number, from 1. */
  readonly number: number;
  /** The line without its line end; null if it is longer than 1 MiB, because no gateway writes such a line. */
  readonly bytes: Buffer | null;
  /** Whether the line has a line end. If not, it is the last line of the file, and can be incomplete. */
  readonly ended: boolean;
}

/** Error for a log file that cannot be read to its end. The lines before the failure were already returned. */
export class UnreadableLog extends OperatorError {}

const lineEnd = 0x0a;
/**
 * Maximum line length. No gateway writes a longer line: a line has few values, and the gateway truncates each of them.
 */
const maxLineBytes = 1024 * 1024;
const chunkBytes = 512 * 1024;
/** Explanations for zlib errors, because zlib's own messages are about its internals. */
const unpackProblems: Readonly<Record<string, string>> = {
  Z_DATA_ERROR: 'it is damaged, or not a gzip file',
  Z_BUF_ERROR: 'its end is missing, because the file was truncated or is still being written',
  REST_LEFT: 'it is damaged in the middle; the rest was not decompressed',
};

/**
 * Reads files one after the other. Yields the complete lines of each chunk, and at the end of a file the incomplete
 * last line, if any.
 * @param files paths, or `-` for standard input; files with the extension `.gz` are decompressed
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
  // zlib treats a zero byte after a gzip member as padding, and stops without an error. In that case, data remains
  // unread.
  if (unpacked.bytesWritten < (await stat(file)).size)
    throw Object.assign(new Error('gzip data remains'), { code: 'REST_LEFT' });
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
      // Most lines are within one chunk and need no copy.
      lines.push(
        this.#restBytes > 0 ? this.#rejoined(true) : this.#line(piece.length > maxLineBytes ? null : piece, true),
      );
      from = at + 1;
    }
    this.#hold(chunk.subarray(from));
    return lines;
  }

  /** Returns the bytes after the last line end as an incomplete line. */
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
