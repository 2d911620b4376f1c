import { createHash, hash } from 'node:crypto';
import type { LogSecret } from './chain.js';

const blockBytes = 64;
const digestBytes = 32;
/** Behind the secret and the hash of the line before, in hex. */
const lineStart = blockBytes + 2 * digestBytes;
/** The most bytes that a character of a string (UTF-16) takes in UTF-8. */
const bytesPerCharacter = 3;
const firstBytes = 4_096;
const endBytes = 128;
const comma = 0x2c;

/**
 * The hashes of the lines of a chain, as `chainHash` makes them one by one. A line is written as bytes once, and hashed
 * where it lies: HMAC is two hashes (RFC 2104), and two calls of `hash` cost half of what an object of Node's does, which
 * was the largest single cost of a line. Nor are texts put together into a line first, which would copy it twice more.
 */
export class LineHash {
  /** The secret with the inner padding, the hash before, what each line begins with, and the rest of the line. */
  #inner = Buffer.allocUnsafeSlow(firstBytes);
  /** The secret with the outer padding, and the inner digest; null where there is no secret. */
  readonly #outer: Buffer | null;
  /** Where what each line begins with ends. */
  readonly #headEnd: number;
  #length = 0;

  /** @param head what each line begins with, in ASCII: the beginning of an object, up to the comma behind a member */
  constructor(secret: LogSecret, head: string) {
    this.#outer = secret === null ? null : Buffer.alloc(blockBytes + digestBytes);
    const key = secret === null ? Buffer.alloc(0) : keyBlock(secret.export());
    for (const [index, byte] of key.entries()) {
      this.#inner[index] = byte ^ 0x36;
      if (this.#outer !== null) this.#outer[index] = byte ^ 0x5c;
    }
    this.#headEnd = lineStart + this.#inner.write(head, lineStart, 'latin1');
  }

  /**
   * The hash of a line, behind the hash of the line before it, in lower-case hex. The line is its head, the members of an
   * object, and what goes on in the last of them.
   * @param members the text of the object, the last member of which is an object too
   * @param more what stands behind that one's members, in ASCII
   */
  of(previous: string, members: string, more: string): string {
    const start = this.#headEnd - 1; // the object's own brace comes to stand where the head has its comma
    this.#makeRoom(start + members.length * bytesPerCharacter + more.length + endBytes);
    const inner = this.#inner;
    inner.write(previous, blockBytes, 'latin1');
    const membersEnd = start + inner.write(members, start, 'utf8') - '}}'.length;
    inner[start] = comma;
    this.#length = membersEnd + inner.write(more, membersEnd, 'latin1');
    if (this.#outer === null) return hash('sha256', inner.subarray(blockBytes, this.#length));
    // Not as a buffer, which costs more to make than the hash itself.
    const digest = hash('sha256', inner.subarray(0, this.#length), 'binary');
    this.#outer.write(digest, blockBytes, 'binary');
    return hash('sha256', this.#outer);
  }

  /** The bytes of the line that was hashed, with this ASCII text behind it, until the next one is. */
  withEnd(end: string): Buffer {
    const length = this.#length + this.#inner.write(end, this.#length, 'latin1');
    return this.#inner.subarray(lineStart, length);
  }

  #makeRoom(bytes: number): void {
    if (bytes <= this.#inner.length) return;
    const larger = Buffer.allocUnsafeSlow(2 * bytes);
    this.#inner.copy(larger, 0, 0, this.#headEnd);
    this.#inner = larger;
  }
}

function keyBlock(key: Buffer): Buffer {
  const block = Buffer.alloc(blockBytes);
  (key.length > blockBytes ? createHash('sha256').update(key).digest() : key).copy(block);
  return block;
}
