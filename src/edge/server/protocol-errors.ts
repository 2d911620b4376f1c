import type { Socket } from 'node:net';
import { STATUS_CODES } from '../../node/http.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { uniqueId } from '../../telemetry/unique-id.js';
import { type ClientConnection, closeAfterCurrentResponse, connectionOf } from '../connections/client-connection.js';
import { errorFailure } from '../response/replies.js';
import { GatewayError } from '../request/errors.js';
import { type GatewayErrorCode, gatewayErrors } from '../../policy/gateway-errors.js';
import { lingeringClose } from '../response/lingering-close.js';

/** A request that Node's HTTP parser rejected before the gateway had created its exchange (the state of a request). */
export interface RefusedRequest {
  readonly id: string;
  readonly code: GatewayErrorCode;
  readonly status: number;
  readonly detail: string;
  /** The peer's address; null if the connection is already closed. */
  readonly remote: IpAddress | null;
}

/** An error of Node's HTTP parser: its code, and further data if the request head is too large. */
type ParserError = NodeJS.ErrnoException & HeadOverflow;

const codeOf: Readonly<Record<string, GatewayErrorCode>> = {
  HPE_INVALID_EOF_STATE: 'client_closed',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
};

/**
 * Handles a request that Node's HTTP parser rejected, and closes the connection. The state of the newest request on the
 * connection determines the response:
 * - Still arriving: this request fails, and its own response reports the error.
 * - Complete, but its response is pending: this response is the last one. If the gateway sent an error now, the client
 *   would read it as that response, for example a 400 for a payout that was made.
 * - Response sent before the whole body had arrived: the rejected bytes are the rest of that body, so no error is sent.
 * - Response was already the last one of its connection: the rejected bytes are ignored.
 * - No response pending: the error response is written to the socket.
 * If the head is too long, nothing is sent until the end of the line shows which limit it exceeds. A connection error,
 * or bytes on a connection that never completed TLS, are not a request.
 * @param asked whether the connection has ever received a byte of a request
 * @param ownHeaders headers of every response of this listener
 * @returns the rejected request; null if there was no request or if an exchange (state of a request) reports the
 *   failure
 */
export function handleParserError(
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
  const connection = connectionOf(socket);
  const code = codeOfError(error, connection);
  if (code === null) return null;
  const exchange = connection.newest;
  if (exchange !== null && !exchange.request.complete) {
    const { response } = exchange;
    const wasKept = response.shouldKeepAlive;
    response.shouldKeepAlive = false; // set before `cancel`, which may send the error response synchronously
    if (response.headersSent) {
      exchange.whenOver(() => {
        endLingering(socket, wasKept);
      });
    }
    if (!response.writableFinished) exchange.cancellation.cancel(new GatewayError(code, error.message));
    return null;
  }
  // The parser reports an error again for each further packet of a rejected request. Only the first error counts.
  if (exchange?.response.shouldKeepAlive === false || connection.hasRefused) return null;
  connection.hasRefused = true;
  const refused: RefusedRequest = {
    id: uniqueId(),
    code: code === 'client_closed' ? 'malformed_request' : code,
    status: gatewayErrors[code === 'client_closed' ? 'malformed_request' : code].status,
    detail: error.message,
    remote: connection.remote,
  };
  if (exchange !== null && !exchange.over) closeAfterCurrentResponse(exchange);
  else if (socket.writable) writeRefusal(socket, refused, ownHeaders);
  return refused;
}

/**
 * Returns the gateway's error code for a parser error. Null if an overlong line has not ended yet, because its end
 * determines the code.
 */
function codeOfError(error: ParserError, connection: ClientConnection): GatewayErrorCode | null {
  if (error.code === 'HPE_HEADER_OVERFLOW') return overlongPart(error, connection);
  return codeOf[error.code ?? ''] ?? 'malformed_request';
}

/**
 * Closes a keep-alive connection after an error in a request body that was being discarded. Any other connection is
 * already in lingering close, which ends by itself.
 */
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

/** Node's error data for a request head that exceeds the parser's limit. */
interface HeadOverflow {
  readonly bytesParsed?: number | undefined;
  /** A Buffer at run time, although Node's type is wider. */
  readonly rawPacket?: unknown;
}

const requestLineStart = /^[A-Z-]+ [^:]/;
const requestLineEnd = / HTTP\/\d\.\d\r$/;
const longestEnd = ' HTTP/1.1\r'.length;
/** Maximum number of bytes to drop while waiting for the end of an overlong line. */
const mostDropped = 4 * 1024 * 1024;

/**
 * Determines which line exceeded the parser's limit: the request line or a header line. If the line began in an earlier
 * packet, only its end shows which kind of line it is. Until then, the parser reports each further packet of the line,
 * and each packet is dropped.
 * @returns null until the end of the line arrives or more than `mostDropped` bytes were dropped
 */
function overlongPart(
  { rawPacket, bytesParsed = 0 }: HeadOverflow,
  connection: ClientConnection,
): 'headers_too_large' | 'target_too_long' | null {
  if (!Buffer.isBuffer(rawPacket)) return 'headers_too_large';
  const packet = rawPacket.toString('latin1');
  const open = connection.unfinishedLine;
  const start = open === null ? packet.lastIndexOf('\n', bytesParsed - 1) + 1 : 0;
  if (open === null && (start > 0 || requestLineStart.test(packet))) {
    return requestLineStart.test(packet.slice(start, bytesParsed)) ? 'target_too_long' : 'headers_too_large';
  }
  const end = packet.indexOf('\n', start);
  const line = (open?.tail ?? '') + packet.slice(start, end === -1 ? undefined : end);
  if (end !== -1) return requestLineEnd.test(line) ? 'target_too_long' : 'headers_too_large';
  const bytes = (open?.bytes ?? 0) + packet.length;
  connection.unfinishedLine = { bytes, tail: line.slice(-longestEnd) };
  return bytes > mostDropped ? 'headers_too_large' : null;
}
