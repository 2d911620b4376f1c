import { randomFillSync } from 'node:crypto';

/** Random bytes are drawn in blocks: a draw for each id would cost more than the id. */
const block = Buffer.alloc(4096);
let used = block.length;

/** Offset of the next random bytes in the block. */
function draw(bytes: number): number {
  if (used + bytes > block.length) {
    randomFillSync(block);
    used = 0;
  }
  used += bytes;
  return used - bytes;
}

/** Crockford's base 32. */
const digits = Buffer.from('0123456789ABCDEFGHJKMNPQRSTVWXYZ');
const timeDigits = 10;
const randomDigits = 16;
const text = Buffer.alloc(timeDigits + randomDigits);
let latestTime = NaN;

/**
 * A ULID: 26 characters, of which the first ten are the time, so that ids sort by it. The others are 80 random bits.
 * Each request needs two; a library would join as many strings as an id has characters.
 */
export function uniqueId(): string {
  const now = Date.now();
  if (now !== latestTime) writeTime(now);
  const start = draw(randomDigits);
  for (let index = 0; index < randomDigits; index += 1) {
    text[timeDigits + index] = digits[(block[start + index] ?? 0) % 32] ?? 0; // 32 divides 256 evenly
  }
  return text.toString('latin1');
}

function writeTime(now: number): void {
  latestTime = now;
  let rest = now;
  for (let index = timeDigits - 1; index >= 0; index -= 1) {
    text[index] = digits[rest % 32] ?? 0;
    rest = Math.floor(rest / 32);
  }
}

/** Random bytes in lower-case hex. */
export function randomHex(bytes: number): string {
  const start = draw(bytes);
  return block.toString('hex', start, start + bytes);
}
