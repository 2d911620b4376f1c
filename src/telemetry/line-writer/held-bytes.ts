const firstBytes = 128 * 1024;

/** Waiting lines, as bytes. Each line is copied once, on arrival, and not again each time lines are joined. */
export class LineBuffer {
  #bytes: Buffer = Buffer.allocUnsafeSlow(firstBytes);
  #spare: Buffer | null = null;
  #length = 0;

  /** Adds a line. Returns its number of bytes, including the line end. */
  add(line: Buffer): number {
    const bytes = line.length + 1;
    if (this.#length + bytes > this.#bytes.length) this.#grow(this.#length + bytes);
    line.copy(this.#bytes, this.#length);
    this.#length += bytes;
    this.#bytes[this.#length - 1] = 0x0a;
    return bytes;
  }

  /** Returns the held bytes, valid until the next call; null without any. */
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
