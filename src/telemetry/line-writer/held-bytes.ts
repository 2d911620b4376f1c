const firstBytes = 128 * 1024;

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
    if (this.#length + bytes > this.#bytes.length) this.#grow(this.#length + bytes);
    line.copy(this.#bytes, this.#length);
    this.#length += bytes;
    this.#bytes[this.#length - 1] = 0x0a;
    return bytes;
  }

  /** Removes and returns the buffered bytes; null if there are none. They are valid until the next call. */
  take(): Buffer | null {
    if (this.#length === 0) return null;
    const taken = this.#bytes.subarray(0, this.#length);
    const next = this.#spare ?? Buffer.allocUnsafeSlow(firstBytes);
    this.#spare = this.#bytes.length === firstBytes ? this.#bytes : null;
    this.#bytes = next;
    this.#length = 0;
    return taken;
  }

  #grow(least: number): void {
    const larger = Buffer.allocUnsafeSlow(Math.max(least, this.#bytes.length * 2));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}
