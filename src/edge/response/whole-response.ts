import type { FastifyReply } from 'fastify';
import { atEndOfTurn } from '../../node/end-of-turn.js';
import type { HeaderList } from '../request/request-data.js';
import type { Readable } from 'node:stream';

/** The largest response body, in bytes, that is written together with its headers. */
const joinedBytes = 16_384;

/**
 * Writes the response head directly with Node. Fastify would copy the headers three times and add a missing content
 * type.
 * @throws TypeError for an invalid header; in that case, nothing is sent
 */
function writeHead(reply: FastifyReply, status: number, headers: HeaderList): void {
  const { exchange } = reply.request;
  const { response } = exchange;
  exchange.beforeResponse(exchange);
  response.writeHead(status, headers);
  reply.hijack();
}

/**
 * Sends a complete response.
 * @param body latin1 text, one character per byte; a small body is sent in one write with the headers
 * @throws TypeError for an invalid header; in that case, nothing is sent
 */
export function sendResponse(reply: FastifyReply, status: number, headers: HeaderList, body: string): void {
  writeHead(reply, status, headers);
  const { exchange } = reply.request;
  const { response } = exchange;
  const { socket } = response;
  const end = (error?: Error | null): void => {
    if (!error) response.end();
  };
  if (body.length > joinedBytes || socket === null) {
    // At shutdown, Node closes each connection whose response has been ended, even if its bytes are still queued for a
    // slow client. The response is therefore ended only when the body has been sent.
    if (socket === null) response.end(body, 'latin1');
    else response.write(body, 'latin1', end);
    exchange.afterResponse(exchange);
    return;
  }
  // End the response only after the body is written. Otherwise Node would write an empty chunk after the body, and two
  // writes cost more than one. TLS reports a completed write only in a later event loop turn, so over TLS the write
  // callback ends the response.
  const isReportedLater = exchange.data.connection.tls !== null;
  socket.cork();
  if (isReportedLater) response.write(body, 'latin1', end);
  else response.write(body, 'latin1');
  atEndOfTurn(() => {
    socket.uncork();
    if (!isReportedLater) end();
    exchange.afterResponse(exchange);
  });
}

/**
 * Streams a response as fast as the client reads. The head is sent with the first bytes of the body. Until then,
 * another response can replace this one. If the client disconnects, the body stream is destroyed. If a header is
 * invalid, the body stream is destroyed with a TypeError.
 * @param body latin1 text, one character per byte
 */
export function streamResponse(reply: FastifyReply, status: number, headers: HeaderList, body: Readable): void {
  const { exchange } = reply.request;
  const { response } = exchange;
  if (exchange.callerIsGone) {
    body.destroy();
    return;
  }
  const { socket } = response;
  const begin = (): boolean => {
    if (response.headersSent) return true;
    try {
      writeHead(reply, status, headers);
      // Flush the head separately. Node would otherwise concatenate it with the first chunk, which costs another copy.
      response.flushHeaders();
      return true;
    } catch (error) {
      body.destroy(error as Error);
      return false;
    }
  };
  // As in `sendResponse`, the response is ended only when all of its body has been sent.
  let queued = 0;
  let isComplete = false;
  const onSent = (error?: Error | null): void => {
    queued -= 1;
    if (!error && isComplete && queued === 0) response.end();
  };
  body.on('data', (text: string) => {
    socket?.cork();
    if (begin()) {
      exchange.forwardedBodyBytes += text.length;
      queued += 1;
      if (!response.write(text, 'latin1', onSent)) body.pause();
    }
    socket?.uncork();
  });
  body.once('end', () => {
    isComplete = true;
    if (begin() && queued === 0) response.end();
  });
  response.on('drain', () => {
    body.resume();
  });
  response.once('close', () => {
    body.destroy();
  });
}
