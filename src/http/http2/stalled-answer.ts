import type { Http2ServerResponse } from 'node:http2';

/** How often it is looked at in the time that an answer may stall. */
const looks = 2;

/**
 * Calls back once when nothing of an answer is taken for so long. Node's own time-out of a stream does not tell: whatever
 * the connection sends for another stream puts it off.
 * @param given how many bytes of the answer there were so far
 */
export function whenStalled(
  { stream }: Http2ServerResponse,
  milliseconds: number,
  given: () => number,
  act: () => void,
): void {
  if (stream.destroyed) return; // it will not be closed once more
  let taken = 0;
  let still = 0;
  const watch = setInterval(() => {
    const now = given() - stream.bufferSize;
    still = now === taken && stream.bufferSize > 0 ? still + 1 : 0;
    taken = now;
    if (still === looks) act();
  }, milliseconds / looks);
  stream.once('close', () => {
    clearInterval(watch);
  });
}
