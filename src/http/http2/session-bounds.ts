import { constants } from 'node:http2';
import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { Roster } from '../roster.js';
import { closeBrokenSession } from './close-broken-session.js';
import { boundSilentFrames } from './silent-frames.js';
import { limitUnsentEnds } from './unsent-ends.js';

/** How long a session may live without a request, and its connection without a session, in milliseconds. */
export interface SessionTimeouts {
  /** Until its first one. */
  readonly first: number;
  /** Between two. */
  readonly idle: number;
  /** Over the end of an answer whose bytes it has taken. */
  readonly answerEnd: number;
  /** Over what is still to be taken of it once it has ended. */
  readonly end: number;
}

/** Requests that may be in progress on a connection at the same time (RFC 9113 advises 100 at least). */
export const maxConcurrentStreams = 100;

/** What a client may waste at once, and each second from then on. Who asks, waits for answers and asks again wastes nothing. */
const burst = 200;
const perSecond = 20;

/** Requests that the gateway itself has reset, as their answers broke off: what a service does is not its callers' waste. */
export const brokenOff = new WeakSet<ServerHttp2Stream>();

/**
 * Bounds what a client may do on an HTTP/2 connection besides asking and reading answers: requests that it takes back
 * (rapid reset, CVE-2023-44487), PING and SETTINGS frames, each of which has to be answered (CVE-2019-9512, CVE-2019-9515),
 * frames that ask for nothing, and staying without asking. Above that the connection is closed with ENHANCE_YOUR_CALM.
 * nghttp2 bounds the rest: CONTINUATION frames (CVE-2024-27983), answers that pile up, frames that are malformed.
 * @param onFlood told once of a session that was closed for it
 */
export function boundSession(
  session: ServerHttp2Session,
  socket: TLSSocket,
  timeouts: SessionTimeouts,
  onFlood: () => void,
): void {
  let tokens = burst;
  let countedAt = performance.now();
  const flood = (): void => {
    if (session.destroyed) return;
    onFlood();
    session.destroy(new Error('the client wastes too much'), constants.NGHTTP2_ENHANCE_YOUR_CALM);
  };
  const waste = (): void => {
    const now = performance.now();
    tokens = Math.min(burst, tokens + ((now - countedAt) / 1000) * perSecond) - 1;
    countedAt = now;
    if (tokens < 0) flood();
  };
  session.on('ping', waste).on('remoteSettings', waste);

  const open = new Roster<ServerHttp2Stream>();
  let quiet: NodeJS.Timeout | undefined;
  const startQuiet = (milliseconds: number): void => {
    clearTimeout(quiet);
    if (open.size === 0 && !session.destroyed) quiet = setTimeout(endQuiet, milliseconds);
  };
  const endQuiet = (): void => {
    session.close();
    // What keeps it open yet is a peer that does not read its end, or one in the middle of a header.
    quiet = setTimeout(() => {
      session.destroy();
    }, timeouts.first);
  };
  session.on('stream', (stream: ServerHttp2Stream) => {
    const leave = open.add(stream);
    clearTimeout(quiet);
    stream.once('close', () => {
      leave();
      const wasTakenBack = stream.aborted || stream.rstCode !== constants.NGHTTP2_NO_ERROR;
      if (wasTakenBack && !brokenOff.has(stream)) waste();
      startQuiet(timeouts.idle);
    });
  });
  session.once('close', () => {
    clearTimeout(quiet);
  });
  startQuiet(timeouts.first);
  boundSilentFrames(session, socket, flood);
  closeBrokenSession(session, socket, () => open.size > 0, timeouts.end);
  limitUnsentEnds(session, () => open.members(), timeouts.answerEnd);
}
