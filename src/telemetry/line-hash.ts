import { createHash, hash } from 'node:crypto';
import type { LogSecret } from './chain.js';

const blockBytes = 64;
const digestBytes = 32;
/** The most bytes that a character of a string (UTF-16) takes in UTF-8. */
const bytesPerCharacter = 3;
const firstBytes = 4_096;
const endBytes = 128;

/**
 * The hashes of the lines of a chain, as `chainHash` makes them one by one. A line is written as bytes once, and hashed
 * where it lies: HMAC is two hashes (RFC 2104), and two calls of `hash` cost half of what an object of Node's does, which
 * was the largest single cost of a line.
 */
export class LineHash {
  /** The secret with the inner padding, the hash before, and the line. */
  #inner = Buffer.allocUnsafeSlow(firstBytes);
  /** The secret with the outer padding, and the inner digest; null where there is no secret. */
  readonly #outer: Buffer | null;
  #length = 0;

  constructor(secret: LogSecret) {
    this.#outer = secret === null ? null : Buffer.alloc(blockBytes + digestBytes);
    const key = secret === null ? Buffer.alloc(0) : keyBlock(secret.export());
    for (const [index, byte] of key.entries()) {
      this.#inner[index] = byte ^ 0x36;
      if (this.#outer !== null) this.#outer[index] = byte ^ 0x5c;
    }
  }

  /** The hash of a line's text behind the hash of the line before it, in lower-case hex. */
  of(previous: string, text: string): string {
    const start = blockBytes + previous.length;
    this.#makeRoom(start + text.length * bytesPerCharacter + endBytes);
    this.#inner.write(previous, blockBytes, 'latin1');
    this.#length = start + this.#inner.write(text, start, 'utf8');
    if (this.#outer === null) return hash('sha256', this.#inner.subarray(blockBytes, this.#length));
    // Not as a buffer, which costs more to make than the hash itself.
    const digest = hash('sha256', this.#inner.subarray(0, this.#length), 'binary');
    this.#outer.write(digest, blockBytes, 'binary');
    return hash('sha256', this.#outer);
  }

  /** The bytes of the line that was hashed, with this ASCII text behind it, until the next one is. */
  withEnd(end: string): Buffer {
    const length = this.#length + this.#inner.write(end, this.#length, 'latin1');
    return this.#inner.subarray(blockBytes + 2 * digestBytes, length);
  }

  #makeRoom(bytes: number): void {
    if (bytes <= this.#inner.length) return;
    const larger = Buffer.allocUnsafeSlow(2 * bytes);
    this.#inner.copy(larger, 0, 0, blockBytes);
    this.#inner = larger;
  }
}

function keyBlock(key: Buffer): Buffer {
  const block = Buffer.alloc(blockBytes);
  (key.length > blockBytes ? createHash('sha256').update(key).digest() : key).copy(block);
  return block;
}
