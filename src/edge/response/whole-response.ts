import type { FastifyReply } from 'fastify';
import { atEndOfTurn } from '../../node/end-of-turn.js';
import type { HeaderList } from '../request/request-data.js';
import type { Readable } from 'node:stream';

/** The largest body, in bytes, that is written together with its headers. */
const joinedBytes = 16_384;

/**
 * Writes the response head. Bypasses Fastify, which copies headers three times and adds a content type if there is
 * none.
 * @throws TypeError for an invalid header; then nothing is sent
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
 * @param body one character per byte (latin1); sent in one write with the headers
 * @throws TypeError for an invalid header; then nothing is sent
 */
export function sendResponse(reply: FastifyReply, status: number, headers: HeaderList, body: string): void {
  writeHead(reply, status, headers);
  const { exchange } = reply.request;
  const { response } = exchange;
  const { socket } = response;
  if (body.length > joinedBytes || socket === null) {
    response.end(body, 'latin1');
    exchange.afterResponse(exchange);
    return;
  }
  // Ends the response only once the body is written: Node would otherwise write an empty chunk after it, and two writes
  // cost more than one. TLS reports the completed write later. Over TLS an empty chunk would be a separate write to the
  // kernel.
  const isReportedLater = exchange.data.connection.tls !== null;
  const end = (error?: Error | null): void => {
    if (!error) response.end();
  };
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
 * Streams a response at the pace at which the client reads. The head is sent with the first bytes; until then another
 * response can replace this one.
 * @param body one character per byte (latin1). Destroyed if the client disconnects, and with a TypeError for an invalid
 *   header
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
      // Flushes the head separately: Node would concatenate it with the first chunk, which costs another copy.
      response.flushHeaders();
      return true;
    } catch (error) {
      body.destroy(error as Error);
      return false;
    }
  };
  body.on('data', (text: string) => {
    socket?.cork();
    if (begin()) {
      exchange.forwardedBodyBytes += text.length;
      if (!response.write(text, 'latin1')) body.pause();
    }
    socket?.uncork();
  });
  body.once('end', () => {
    if (begin()) response.end();
  });
  response.on('drain', () => {
    body.resume();
  });
  response.once('close', () => {
    body.destroy();
  });
}
