import type { Socket } from 'node:net';

/** What Node tells of a head that was too large for its parser. */
export interface HeadOverflow {
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
export function overlongPart(
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
