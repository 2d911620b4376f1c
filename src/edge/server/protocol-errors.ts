import type { Socket } from 'node:net';
import { STATUS_CODES } from '../../node/http.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { connectionFactsOf } from '../request/connection-facts.js';
import { requestIdOf } from '../request/trace-context.js';
import { endBehindResponse, newestExchange } from '../connections/pipeline.js';
import { errorFailure } from '../response/replies.js';
import { GatewayError, type GatewayErrorCode, gatewayErrors } from '../request/errors.js';
import { lingeringClose } from '../response/lingering-close.js';

/** A request that the HTTP parser refused before there was an exchange. */
export interface RefusedRequest {
  readonly id: string;
  readonly code: GatewayErrorCode;
  readonly status: number;
  readonly detail: string;
  /** Null where the connection is gone already. */
  readonly remote: IpAddress | null;
}

/** What Node tells of what its parser refused, besides the code. */
type ParserError = NodeJS.ErrnoException & HeadOverflow;

/** Connections on which a request was refused without an exchange. */
const refusedOn = new WeakSet<Socket>();

const codeOf: Readonly<Record<string, GatewayErrorCode>> = {
  HPE_INVALID_EOF_STATE: 'client_closed',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
};

/**
 * Answers what Node's HTTP parser refused, and closes the connection.
 * - The newest request is still arriving: it fails, and its own answer says so.
 * - The newest request has arrived and is owed its answer: that answer is the last one. An error written now would be
 *   read as the answer to it, a 400 for a payout that was made.
 * - The newest request was answered before its body had arrived: what comes is the rest of that body, and no request.
 * - The newest answer is the last one of its connection: what comes behind it is no request.
 * - Nothing is owed: the envelope is written to the socket.
 * - A head was too long, and it is not known yet which part of it: nothing is done before that is.
 * A connection that broke, or that never spoke TLS, was no request.
 * @param asked whether the connection has ever carried a byte of a request
 * @param ownHeaders what every response of this listener has
 * @returns what was refused without an exchange; null where there was no request, or an exchange carries the failure
 */
export function answerProtocolError(
  error: ParserError,
  socket: Socket,
  asked: boolean,
  ownHeaders: Readonly<Record<string, string>> = {},
): RefusedRequest | null {
  const ofParser = error.code?.startsWith('HPE_') === true || error.code === 'ERR_HTTP_REQUEST_TIMEOUT';
  if (!ofParser || !asked) {
    socket.destroy();
    return null;
  }
  const code = codeOfError(error, socket);
  if (code === null) return null;
  const exchange = newestExchange(socket);
  if (exchange !== null && !exchange.request.complete) {
    const { response } = exchange;
    const wasKept = response.shouldKeepAlive;
    response.shouldKeepAlive = false; // before the failure, whose answer may be given at once
    if (response.headersSent) {
      exchange.whenOver(() => {
        endLingering(socket, wasKept);
      });
    }
    if (!response.writableFinished) exchange.cancellation.cancel(new GatewayError(code, error.message));
    return null;
  }
  // The parser reports each further packet of what it has refused.
  if (exchange?.response.shouldKeepAlive === false || refusedOn.has(socket)) return null;
  refusedOn.add(socket);
  const refused: RefusedRequest = {
    id: requestIdOf([], false),
    code: code === 'client_closed' ? 'malformed_request' : code,
    status: gatewayErrors[code === 'client_closed' ? 'malformed_request' : code].status,
    detail: error.message,
    remote: connectionFactsOf(socket).remote,
  };
  if (exchange !== null && !exchange.over) endBehindResponse(exchange);
  else if (socket.writable) writeRefusal(socket, refused, ownHeaders);
  return refused;
}

/** Null while it cannot be told yet. */
function codeOfError(error: ParserError, socket: Socket): GatewayErrorCode | null {
  if (error.code === 'HPE_HEADER_OVERFLOW') return overlongPart(error, socket);
  return codeOf[error.code ?? ''] ?? 'malformed_request';
}

/** A connection that lingers already ends by itself; one that was to be kept has broken off within a dropped body. */
function endLingering(socket: Socket, kept: boolean): void {
  if (kept) socket.destroy();
}

function writeRefusal(
  socket: Socket,
  { code, id }: RefusedRequest,
  ownHeaders: Readonly<Record<string, string>>,
): void {
  const { status, body, headers } = errorFailure(code);
  const lines = Object.entries({
    ...{ date: new Date().toUTCString(), ...headers, ...ownHeaders },
    ...{ 'x-request-id': id, connection: 'close' },
  });
  const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${head}\r\n${body}`);
  lingeringClose(socket);
}

/** What Node tells of a head that was too large for its parser. */
interface HeadOverflow {
  readonly bytesParsed?: number | undefined;
  /** A Buffer, whatever its type says. */
  readonly rawPacket?: unknown;
}

/** What was dropped of a line that has not ended yet, and its last characters. */
interface OpenLine {
  bytes: number;
  tail: string;
}

const openLines = new WeakMap<Socket, OpenLine>();
const requestLineStart = /^[A-Z-]+ [^:]/;
const requestLineEnd = / HTTP\/\d\.\d\r$/;
const longestEnd = ' HTTP/1.1\r'.length;
/** How much of such a line is dropped, in bytes, to see how it ends. */
const mostDropped = 4 * 1024 * 1024;

/**
 * Finds out which line of a head was too long for the parser: the request line, or one of the headers. Where it began in
 * an earlier packet, only its end can tell. The parser reports each further packet as well, and each is dropped.
 * @returns null while the end of the line has not come
 */
function overlongPart(
  { rawPacket, bytesParsed = 0 }: HeadOverflow,
  socket: Socket,
): 'headers_too_large' | 'target_too_long' | null {
  if (!Buffer.isBuffer(rawPacket)) return 'headers_too_large';
  const packet = rawPacket.toString('latin1');
  const open = openLines.get(socket);
  const start = open === undefined ? packet.lastIndexOf('\n', bytesParsed - 1) + 1 : 0;
  if (open === undefined && (start > 0 || requestLineStart.test(packet))) {
    return requestLineStart.test(packet.slice(start, bytesParsed)) ? 'target_too_long' : 'headers_too_large';
  }
  const end = packet.indexOf('\n', start);
  const line = (open?.tail ?? '') + packet.slice(start, end === -1 ? undefined : end);
  if (end !== -1) return requestLineEnd.test(line) ? 'target_too_long' : 'headers_too_large';
  const bytes = (open?.bytes ?? 0) + packet.length;
  openLines.set(socket, { bytes, tail: line.slice(-longestEnd) });
  return bytes > mostDropped ? 'headers_too_large' : null;
}
