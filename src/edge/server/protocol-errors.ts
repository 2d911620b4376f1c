import type { Socket } from 'node:net';
import { atEndOfTurn } from '../../node/end-of-turn.js';
import { STATUS_CODES } from '../../node/http.js';
import { uniqueId } from '../../telemetry/unique-id.js';
import { type ClientConnection, closeAfterCurrentResponse, connectionOf } from '../connections/client-connection.js';
import type { ConnectionFacts } from '../request/connection-facts.js';
import { errorFailure } from '../response/replies.js';
import { GatewayError } from '../request/errors.js';
import { type GatewayErrorCode, gatewayErrors } from '../../policy/gateway-errors.js';
import { lingeringClose } from '../response/lingering-close.js';

/** A request that Node's HTTP parser rejected before the gateway had created its exchange (the state of a request). */
export interface RefusedRequest extends Pick<ConnectionFacts, 'remote' | 'port' | 'tls'> {
  readonly id: string;
  readonly code: GatewayErrorCode;
  readonly status: number;
  readonly detail: string;
}

/** An error of Node's HTTP parser: its code, and further data if the request head is too large. */
type ParserError = NodeJS.ErrnoException & HeadOverflow;

const requestTimeout = 'ERR_HTTP_REQUEST_TIMEOUT';
const codeOf: Readonly<Record<string, GatewayErrorCode>> = {
  HPE_INVALID_EOF_STATE: 'client_closed',
  [requestTimeout]: 'request_timeout',
};

/** Replaces the parser's own message, which is only "Parse Error". */
const clientLeft = 'the client disconnected before its request was complete';
/** The reason in the log if an overlong line never ended. */
const closedInLine = 'the connection closed before the end of an overlong line';

/**
 * Handles a request that Node's HTTP parser rejected, and closes the connection. The state of the newest request on the
 * connection determines the response:
 * - The request is still arriving: it fails, and its own response reports the error.
 * - The request is complete, but its response is pending: this response becomes the last one of the connection. If the
 *   gateway sent an error now, the client would read the error as that response, for example a 400 for a payout that
 *   was made.
 * - The response was sent before the whole body had arrived: the rejected bytes are the rest of the body, so no error
 *   is sent.
 * - The response was already the last one of the connection: the rejected bytes are ignored.
 * - No response is pending: an error response is written to the socket.
 * If a line of the head is too long, nothing is sent until the end of the line shows which limit was exceeded. Errors
 * of the connection itself, and bytes on a connection that never completed TLS, are not requests: they only close the
 * connection.
 * @param asked whether the connection has ever received a byte of a request
 * @param onRefused called with the rejected request, for the log. Not called if there is no further request to log, or
 *   if an exchange (state of a request) reports the failure.
 * @param ownHeaders headers of every response of this listener
 */
export function handleParserError(
  error: ParserError,
  socket: Socket,
  asked: boolean,
  onRefused: (refused: RefusedRequest) => void,
  ownHeaders: Readonly<Record<string, string>> = {},
): void {
  const ofParser = error.code?.startsWith('HPE_') === true || error.code === requestTimeout;
  if (!ofParser || !asked) {
    socket.destroy();
    return;
  }
  const connection = connectionOf(socket);
  const isWithinLine = connection.unfinishedLine !== null;
  const code = codeOfError(error, connection);
  if (code === null) {
    if (!isWithinLine) refuseAtClose(connection, onRefused);
    return;
  }
  const detail = code === 'client_closed' ? clientLeft : error.message;
  const exchange = connection.newest;
  if (exchange !== null && !exchange.request.complete) {
    const { response } = exchange;
    const wasKept = response.shouldKeepAlive;
    response.shouldKeepAlive = false; // set before `cancel`, which may send the error response synchronously
    // Without keep-alive, the connection is already in lingering close, which ends by itself.
    if (response.headersSent && wasKept) {
      exchange.whenOver(() => {
        socket.destroy();
      });
    }
    if (!response.writableFinished) exchange.cancellation.cancel(new GatewayError(code, detail));
    return;
  }
  // The parser reports an error again for each further packet of a rejected request. Only the first error counts.
  if (exchange?.response.shouldKeepAlive === false || connection.hasRefused) return;
  const refused = refuse(connection, code === 'client_closed' ? 'malformed_request' : code, detail);
  if (exchange !== null && !exchange.over) closeAfterCurrentResponse(exchange);
  else if (socket.writable) writeRefusal(socket, refused, ownHeaders);
  onRefused(refused);
}

/**
 * Calls `handle`, unless the error is the timeout of a request that has arrived completely. After a stall of the
 * process, Node runs due timers before it reads the bytes that arrived meanwhile, so a timeout is handled after the
 * next read.
 */
export function unlessArrived(error: ParserError, socket: Socket, handle: () => void): void {
  if (error.code !== requestTimeout) {
    handle();
    return;
  }
  const connection = connectionOf(socket);
  const before = connection.newest;
  const { bytesWritten } = socket;
  const isBodyLate = before?.request.complete === false;
  atEndOfTurn(() => {
    const late = isBodyLate ? before : connection.newest;
    // If the head was late, `before` is the previous request, so the late request must be a newer one.
    const hasArrived = late?.request.complete === true && (isBodyLate || late !== before);
    // If the late request has already ended, `newest` is null again, but its response has raised `bytesWritten`.
    const hasEnded = before === null && late === null && socket.bytesWritten !== bytesWritten;
    if (!hasArrived && !hasEnded && !socket.destroyed) handle();
  });
}

/**
 * Reports a request whose connection closes within an overlong line: the parser, which has already failed, reports no
 * error for this close.
 */
function refuseAtClose(connection: ClientConnection, onRefused: (refused: RefusedRequest) => void): void {
  const exchange = connection.newest; // read before the close, which clears it
  if (exchange !== null && !exchange.request.complete) return;
  connection.socket.once('close', () => {
    if (exchange?.response.shouldKeepAlive === false || connection.hasRefused) return;
    onRefused(refuse(connection, 'headers_too_large', closedInLine));
  });
}

function refuse(connection: ClientConnection, code: GatewayErrorCode, detail: string): RefusedRequest {
  connection.hasRefused = true;
  const { remote, port, tls } = connection;
  return { id: uniqueId(), code, status: gatewayErrors[code].status, detail, remote, port, tls };
}

/**
 * Returns the gateway's error code for a parser error. Null if an overlong line has not ended yet, because its end
 * determines the code.
 */
function codeOfError(error: ParserError, connection: ClientConnection): GatewayErrorCode | null {
  if (error.code === 'HPE_HEADER_OVERFLOW') return overlongPart(error, connection);
  return codeOf[error.code ?? ''] ?? 'malformed_request';
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
 * packet, only its end shows which kind of line it is. Before this end arrives, the parser reports each further packet
 * of the line, and the gateway drops the packet.
 * @returns the error code; null until the end of the line arrives or more than `mostDropped` bytes were dropped
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
