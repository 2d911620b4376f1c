import { randomFillSync } from 'node:crypto';
import { ulid } from 'ulid';

/** Random bytes are drawn by the block: a draw for each character cost a fifth of all CPU time of a request. */
const block = Buffer.alloc(4096);
let used = block.length;

function random(): number {
  if (used === block.length) {
    randomFillSync(block);
    used = 0;
  }
  return (block[used++] ?? 0) / 256; // a character has 32 values, which divide 256 evenly
}

/** A ULID: 26 characters of which the first ten are the time, so that ids sort by it, and the rest 80 random bits. */
export function uniqueId(): string {
  return ulid(undefined, random);
}

/** So many random bytes in lower-case hex. */
export function randomHex(bytes: number): string {
  if (used + bytes > block.length) {
    randomFillSync(block);
    used = 0;
  }
  used += bytes;
  return block.toString('hex', used - bytes, used);
}
