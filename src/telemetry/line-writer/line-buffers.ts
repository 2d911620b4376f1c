const firstBytes = 128 * 1024;
const lineEnd = 0x0a;

/** Returns a larger buffer that begins with the first `length` bytes of `bytes` and has room for `added` more. */
function enlarged(bytes: Buffer, length: number, added: number): Buffer {
  const larger = Buffer.allocUnsafeSlow(Math.max(length + added, bytes.length * 2));
  bytes.copy(larger, 0, 0, length);
  return larger;
}

/**
 * A buffer of lines that wait to be written. Each line is copied once when it is added, and not again when lines are
 * written together.
 */
export class LineBuffer {
  #bytes: Buffer = Buffer.allocUnsafeSlow(firstBytes);
  #spare: Buffer | null = null;
  #length = 0;

  /** Adds a line. Returns its length in bytes, including the line end. */
  add(line: Buffer): number {
    const bytes = line.length + 1;
    if (this.#length + bytes > this.#bytes.length) this.#bytes = enlarged(this.#bytes, this.#length, bytes);
    line.copy(this.#bytes, this.#length);
    this.#length += bytes;
    this.#bytes[this.#length - 1] = lineEnd;
    return bytes;
  }

  /** Removes and returns the buffered bytes; null if empty. The bytes are valid until the next call of `take`. */
  take(): Buffer | null {
    if (this.#length === 0) return null;
    const taken = this.#bytes.subarray(0, this.#length);
    const next = this.#spare ?? Buffer.allocUnsafeSlow(firstBytes);
    this.#spare = this.#bytes.length === firstBytes ? this.#bytes : null;
    this.#bytes = next;
    this.#length = 0;
    return taken;
  }
}

/** Maximum number of bytes kept in memory to write the newest lines again if the log file is removed. */
const mostBytes = 16 * 1024 * 1024;

/**
 * If a log file is removed, writes to it still succeed, but its lines are lost. So this class keeps written lines until
 * a check has found the file still in place. If the file was removed instead, the kept lines are written again, to the
 * new file.
 */
export class UnconfirmedLines {
  #bytes: Buffer = Buffer.allocUnsafeSlow(firstBytes);
  #length = 0;
  /** How many bytes were written to the file before the first kept line. */
  #start: number;
  /** How many unconfirmed lines were dropped for lack of memory. */
  #dropped = 0;

  /** @param start number of bytes that go to the file before the first kept line */
  constructor(start = 0) {
    this.#start = start;
  }

  get length(): number {
    return this.#length;
  }

  /** Adds one or more lines, without the last line end. */
  add(line: Buffer): void {
    const bytes = line.length + 1;
    if (this.#length + bytes > mostBytes) this.#drop();
    if (this.#length + bytes > this.#bytes.length) this.#bytes = enlarged(this.#bytes, this.#length, bytes);
    line.copy(this.#bytes, this.#length);
    this.#length += bytes;
    this.#bytes[this.#length - 1] = lineEnd;
  }

  /**
   * Inserts lines before all other kept lines, because they go to the file first.
   * @param lines with their line ends
   */
  prepend(lines: Buffer): void {
    const bytes = Buffer.concat([lines, this.#bytes.subarray(0, this.#length)]);
    [this.#bytes, this.#length] = [bytes, bytes.length];
  }

  /**
   * Removes the lines within the first `written` bytes that this process wrote to the file. The file was not removed,
   * so these lines need not be written again.
   */
  confirm(written: number): void {
    const bytes = Math.min(written - this.#start, this.#length);
    if (bytes < 0) return;
    // A partly written line stays unconfirmed.
    const confirmed = bytes === 0 ? 0 : this.#bytes.lastIndexOf(lineEnd, bytes - 1) + 1;
    this.#bytes.copyWithin(0, confirmed, this.#length);
    this.#length -= confirmed;
    this.#start += confirmed;
    this.#dropped = 0;
  }

  /** Removes and returns all lines, with their line ends, and the number of lines that were dropped. */
  take(): { readonly bytes: Buffer; readonly lost: number } {
    const taken = { bytes: this.#bytes.subarray(0, this.#length), lost: this.#dropped };
    [this.#bytes, this.#length, this.#dropped] = [Buffer.alloc(0), 0, 0];
    return taken;
  }

  #drop(): void {
    const bytes = this.#bytes.subarray(0, this.#length);
    for (let at = bytes.indexOf(lineEnd); at !== -1; at = bytes.indexOf(lineEnd, at + 1)) this.#dropped += 1;
    this.#start += this.#length;
    this.#length = 0;
  }
}
