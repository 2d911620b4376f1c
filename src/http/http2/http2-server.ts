import type http from 'node:http';
import http2, { Http2ServerResponse } from 'node:http2';
import type { Http2ServerRequest, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import { noteRequest } from '../connection-facts.js';
import type { ConnectionFacts } from '../connection-facts.js';
import { servedMethod } from '../known-method.js';
import { fieldOverheadBytes } from './require-http2-limits.js';
import { boundSession, brokenOff, maxConcurrentStreams } from './session-bounds.js';
import type { SessionTimeouts } from './session-bounds.js';

/** Malformed frames, empty ones among them (CVE-2019-9518), and streams above the limit, until a connection is closed. */
const mostInvalidFrames = 100;

/** How long a request with an unread body lingers after its answer, in milliseconds. */
const lingerMilliseconds = 2_000;

/** What an HTTP/2 server is made of. */
export interface Http2Options {
  readonly handler: http.RequestListener;
  readonly maxHeaderBytes: number;
  readonly timeouts: SessionTimeouts;
  readonly onSession: (session: ServerHttp2Session) => void;
  readonly onFlood: () => void;
}

/** Serves a connection on which HTTP/2 was agreed. */
export type ServeHttp2 = (socket: TLSSocket, facts: ConnectionFacts) => void;

/**
 * HTTP/2 in front of the same handler that HTTP/1.1 has. It never listens: connections are handed to it when ALPN has
 * chosen it, so that there is one TLS, one limit of connections and one way to an answer.
 */
export function createHttp2Server({ handler, maxHeaderBytes, timeouts, onSession, onFlood }: Http2Options): ServeHttp2 {
  const maxAcceptedBytes = 2 * maxHeaderBytes; // up to here a list that is too long is answered with 431, and not reset
  const server = http2.createServer({
    Http2ServerResponse: Answer,
    settings: { maxConcurrentStreams, maxHeaderListSize: maxAcceptedBytes, enablePush: false },
    // Bytes are limited, not fields; each counts so many at least.
    maxHeaderListPairs: Math.ceil(maxAcceptedBytes / fieldOverheadBytes),
    maxSessionInvalidFrames: mostInvalidFrames,
    maxSessionRejectedStreams: mostInvalidFrames,
  });
  const factsOfSession = new WeakMap<object, ConnectionFacts>();
  const onRequest = (request: Http2ServerRequest, response: Http2ServerResponse): void => {
    const { stream } = response;
    const facts = stream.session === undefined ? undefined : factsOfSession.get(stream.session);
    if (facts === undefined) {
      stream.destroy();
      return;
    }
    noteRequest(request, facts);
    // CONNECT has no path; its target is the authority, as in HTTP/1.1.
    if (request.headers[':path'] === undefined) request.url = request.authority;
    // What was sent stays in the raw headers, and is refused there.
    Object.assign(request, { method: servedMethod(request.method) });
    if (!stream.endAfterHeaders) closeOverUnreadBody(stream);
    // Everything behind takes it for a request of HTTP/1.1; where that is not so, http2-message.ts tells.
    handler(request as unknown as http.IncomingMessage, response as unknown as http.ServerResponse);
  };
  server.on('request', onRequest);
  // The default would ask for the body before anybody has looked at the key.
  server.on('checkContinue', onRequest);
  server.on('checkExpectation', onRequest);
  server.on('connect', onRequest as never);
  return (socket, facts) => {
    server.once('session', (session) => {
      factsOfSession.set(session, facts);
      boundSession(session, socket, timeouts, onFlood);
      onSession(session);
    });
    server.emit('connection', socket);
  };
}

/** An answer of HTTP/2 that is broken off as one: Node would reset it with NO_ERROR, and half of it would pass for the whole. */
class Answer extends Http2ServerResponse {
  override destroy(): this {
    if (!this.stream.closed) brokenOff.add(this.stream); // else its client, or a wrong frame of its, has reset it
    this.stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
    this.stream.destroy();
    return this;
  }
}

/**
 * Tells a client that is answered already that it need not send the rest of its body (RFC 9113 8.1): nobody reads it, and
 * it would keep its place for ever. Not at once: a reset overtakes the end of the answer, which then is none.
 */
function closeOverUnreadBody(stream: ServerHttp2Stream): void {
  stream.once('finish', () => {
    const linger = setTimeout(() => {
      stream.close(http2.constants.NGHTTP2_NO_ERROR);
    }, lingerMilliseconds);
    stream.once('close', () => {
      clearTimeout(linger);
    });
  });
}
