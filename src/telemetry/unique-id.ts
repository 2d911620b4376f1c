import { randomFillSync } from 'node:crypto';

/**
 * Random bytes are generated in blocks. A separate call for each id would take longer than all other steps of creating
 * the id.
 */
const block = Buffer.alloc(4096);
let used = block.length;

/** Takes the next random bytes of the block, and returns their offset. Refills the block if necessary. */
function draw(bytes: number): number {
  if (used + bytes > block.length) {
    randomFillSync(block);
    used = 0;
  }
  used += bytes;
  return used - bytes;
}

/** The digits of Crockford's base 32. */
const digits = Buffer.from('0123456789ABCDEFGHJKMNPQRSTVWXYZ');
const timeDigits = 10;
const randomDigits = 16;
const text = Buffer.alloc(timeDigits + randomDigits);
let latestTime = NaN;

/**
 * Creates a ULID of 26 characters. The first ten are the time, so that ids sort by time; the others are 80 random bits.
 * The digits are written into a buffer, because each request needs two ids and joining strings would be slower.
 */
export function uniqueId(): string {
  const now = Date.now();
  if (now !== latestTime) writeTime(now);
  const start = draw(randomDigits);
  for (let index = 0; index < randomDigits; index += 1) {
    // All digits are equally likely, because 32 divides 256.
    text[timeDigits + index] = digits[(block[start + index] ?? 0) % 32] ?? 0;
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

/** Returns random bytes as lower-case hex. */
export function randomHex(bytes: number): string {
  const start = draw(bytes);
  return block.toString('hex', start, start + bytes);
}
