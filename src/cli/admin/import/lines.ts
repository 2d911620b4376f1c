/** One line of a stream. `bytes` is null if the line is too long. */
export interface Line {
  /** Line number in the stream, from 1. */
  readonly number: number;
  readonly bytes: Buffer | null;
  /** Number of bytes from the start of the stream to the end of this line. */
  readonly end: number;
}

const lineFeed = 0x0a;
const carriageReturn = 0x0d;

/**
 * Splits a stream into lines, without their line ends. Buffers at most `longestBytes` of a line, so that long lines
 * cannot exhaust the memory.
 */
export async function* linesOf(stream: AsyncIterable<Buffer>, longestBytes: number): AsyncGenerator<Line> {
  let [number, end, size] = [1, 0, 0];
  let pieces: Buffer[] = [];
  const line = (): Line => {
    const bytes = size > longestBytes ? null : Buffer.concat(pieces);
    return { number, bytes: bytes?.at(-1) === carriageReturn ? bytes.subarray(0, -1) : bytes, end };
  };
  const take = (piece: Buffer): void => {
    size += piece.length;
    end += piece.length;
    if (size > longestBytes) pieces = [];
    else pieces.push(piece);
  };
  for await (const chunk of stream) {
    let start = 0;
    for (let at = chunk.indexOf(lineFeed); at !== -1; at = chunk.indexOf(lineFeed, start)) {
      take(chunk.subarray(start, at));
      end += 1;
      yield line();
      [number, size, pieces, start] = [number + 1, 0, [], at + 1];
    }
    take(chunk.subarray(start));
  }
  if (size > 0) yield line();
}
