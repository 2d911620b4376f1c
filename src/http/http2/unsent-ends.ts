import { constants } from 'node:http2';
import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2';

/** How often it is looked in the time that an end may wait. */
const looks = 2;

/**
 * Gives up answers whose bytes are out and whose end has not been for so long (half as long again at most). Node's response
 * may have trailers, so that its end is a frame of its own, and that waits for the client's window as the bytes do. No limit of
 * answers sees it, as nothing of such a one is held up; timers for each answer would cost more than this one.
 * @param open the requests in progress
 */
export function limitUnsentEnds(
  session: ServerHttp2Session,
  open: () => readonly ServerHttp2Stream[],
  milliseconds: number,
): void {
  const unsentSince = new WeakMap<ServerHttp2Stream, number>();
  const look = setInterval(() => {
    const now = performance.now();
    for (const stream of open()) {
      if (!isEndUnsent(stream)) continue;
      const since = unsentSince.get(stream) ?? now;
      unsentSince.set(stream, since);
      if (now - since < milliseconds) continue;
      stream.close(constants.NGHTTP2_INTERNAL_ERROR);
      stream.destroy();
    }
  }, milliseconds / looks);
  session.once('close', () => {
    clearInterval(look);
  });
}

/** One whose end is out may be open all the same: its client still sends its request. */
function isEndUnsent(stream: ServerHttp2Stream): boolean {
  return stream.writableFinished && !stream.closed && stream.state.localClose === 0;
}
