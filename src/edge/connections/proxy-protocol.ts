import type { Socket } from 'node:net';
import { type IpAddress, parseIpAddress } from '../../policy/ip-address.js';

/** The source address and port in a PROXY header. */
interface ConnectionSource {
  readonly address: IpAddress;
  readonly port: number;
}

/** Callbacks for a connection that must begin with a PROXY protocol header. */
export interface HeaderReader {
  /**
   * Called once, after the header has been removed. `source` is null if the header names no client address.
   * `bufferedBytes` is the number of bytes after the header that are already in the socket's buffer.
   */
  readonly onHeader: (source: ConnectionSource | null, bufferedBytes: number) => void;
  /**
   * Called once if the connection is closed because it lacks a valid header. Not called if the peer reset the
   * connection, or closed the connection before the first byte.
   */
  readonly onRefused: () => void;
}

/**
 * Reads and removes the PROXY protocol header of a connection. Bytes after the header, even in the same packet, are put
 * back into the socket. The next reader (TLS or HTTP) thus starts with the first byte after the header.
 * @param timeoutMilliseconds timeout for the complete header
 */
export function readProxyHeader(socket: Socket, timeoutMilliseconds: number, reader: HeaderReader): void {
  let received: Buffer = Buffer.alloc(0);
  const refuse = (): void => {
    release();
    socket.destroy();
    reader.onRefused();
  };
  const deadline = setTimeout(refuse, timeoutMilliseconds);
  const onReadable = (): void => {
    for (let chunk = readChunk(socket); chunk !== null; chunk = readChunk(socket)) {
      received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
      const header = parseProxyHeader(received);
      if (header.kind === 'incomplete') continue;
      if (header.kind !== 'header') {
        refuse();
        return;
      }
      release();
      const rest = received.subarray(header.length);
      if (rest.length > 0) socket.unshift(rest);
      reader.onHeader(header.source, socket.readableLength);
      return;
    }
  };
  const onEnd = (): void => {
    if (received.length > 0) refuse();
    else onClose();
  };
  const onClose = (): void => {
    release();
    socket.destroy();
  };
  const release = (): void => {
    clearTimeout(deadline);
    socket.off('readable', onReadable).off('end', onEnd).off('close', onClose);
  };
  socket.on('readable', onReadable).on('end', onEnd).on('close', onClose);
}

/**
 * Reads at most the maximum header length, so that a flood of bytes is not copied as a whole. Returns null if no bytes
 * are buffered.
 */
function readChunk(socket: Socket): Buffer | null {
  if (socket.readableLength === 0) return null;
  return socket.read(Math.min(socket.readableLength, maxProxyHeaderBytes)) as Buffer | null;
}

/** Result of parsing the bytes received so far. */
type ProxyHeader =
  | { readonly kind: 'incomplete' | 'invalid' }
  /**
   * `source` is null for the proxy's own connection (LOCAL), and if the client address is unknown (UNKNOWN, UNSPEC).
   */
  | { readonly kind: 'header'; readonly source: ConnectionSource | null; readonly length: number };

const incomplete: ProxyHeader = { kind: 'incomplete' };
const invalid: ProxyHeader = { kind: 'invalid' };
const v1Start = Buffer.from('PROXY ', 'latin1');
const v2Signature = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
/** Maximum length of a version 1 header: a line with `PROXY UNKNOWN`, two long IPv6 addresses, two ports and CRLF. */
const v1MaxBytes = 107;
const v2FixedBytes = 16;
/**
 * Maximum length of the addresses and TLVs (extension fields). The specification allows 65,535 bytes, but headers of
 * load balancers are smaller, even with client certificates.
 */
const v2MaxPayloadBytes = 4_096;

/** Maximum accepted header length, in bytes. */
const maxProxyHeaderBytes = v2FixedBytes + v2MaxPayloadBytes;

/**
 * Parses a PROXY protocol header of version 1 or 2 (haproxy.org, proxy-protocol.txt) at the start of a connection.
 * Ignores bytes after the header, so the result does not depend on packet boundaries.
 */
export function parseProxyHeader(bytes: Buffer): ProxyHeader {
  if (beginsLike(bytes, v2Signature)) return bytes.length < v2FixedBytes ? incomplete : parseV2(bytes);
  if (beginsLike(bytes, v1Start)) return parseV1(bytes);
  return invalid;
}

/** Whether the bytes received so far match the beginning of `start`. */
function beginsLike(bytes: Buffer, start: Buffer): boolean {
  const length = Math.min(bytes.length, start.length);
  return bytes.subarray(0, length).equals(start.subarray(0, length));
}

const portForm = /^(?:0|[1-9]\d{0,4})$/;

function parseV1(bytes: Buffer): ProxyHeader {
  const end = bytes.subarray(0, v1MaxBytes).indexOf('\r\n');
  if (end === -1) return bytes.length < v1MaxBytes ? incomplete : invalid;
  const length = end + 2;
  const [, family, ...rest] = bytes.toString('latin1', 0, end).split(' ');
  // The specification requires receivers to ignore the rest of an UNKNOWN line.
  if (family === 'UNKNOWN') return { kind: 'header', source: null, length };
  const [source = '', destination = '', ...ports] = rest;
  const hasPorts = ports.length === 2 && ports.every((port) => portForm.test(port) && Number(port) <= 65_535);
  if (!hasPorts || !isOfFamily(source, family) || !isOfFamily(destination, family)) {
    return invalid;
  }
  return headerOf(source, Number(ports[0]), length);
}

function isOfFamily(address: string, family: string | undefined): boolean {
  return family === (address.includes(':') ? 'TCP6' : 'TCP4') && parseIpAddress(address) !== null;
}

function headerOf(sourceText: string, port: number, length: number): ProxyHeader {
  const address = parseIpAddress(sourceText);
  return address === null ? invalid : { kind: 'header', source: { address, port }, length };
}

/**
 * For each supported value of the byte that encodes address family and transport: the length of addresses and ports,
 * and the function that reads the source address.
 */
const v2Streams: ReadonlyMap<number, { readonly bytes: number; readonly sourceOf: (bytes: Buffer) => string }> =
  new Map([
    [0x11, { bytes: 12, sourceOf: ipv4Text }],
    [0x21, { bytes: 36, sourceOf: ipv6Text }],
  ]);
const local = 0x20;
const proxied = 0x21;
const unspecified = 0x00;

function parseV2(bytes: Buffer): ProxyHeader {
  const versionAndCommand = bytes.readUInt8(12);
  const familyAndTransport = bytes.readUInt8(13);
  const payloadBytes = bytes.readUInt16BE(14);
  if (versionAndCommand !== local && versionAndCommand !== proxied) return invalid;
  if (payloadBytes > v2MaxPayloadBytes) return invalid;
  const stream = v2Streams.get(familyAndTransport);
  const speaksForItself = versionAndCommand === local || familyAndTransport === unspecified;
  // Reject clients that do not use TCP over IP, because the access rules need an IP address.
  if (!speaksForItself && (stream === undefined || payloadBytes < stream.bytes)) return invalid;
  const length = v2FixedBytes + payloadBytes;
  if (bytes.length < length) return incomplete;
  if (speaksForItself || stream === undefined) return { kind: 'header', source: null, length };
  // The two addresses are followed by two ports: first the source port, then the destination port.
  return headerOf(stream.sourceOf(bytes), bytes.readUInt16BE(v2FixedBytes + stream.bytes - 4), length);
}

function ipv4Text(bytes: Buffer): string {
  return bytes.subarray(v2FixedBytes, v2FixedBytes + 4).join('.');
}

function ipv6Text(bytes: Buffer): string {
  const groups = Array.from({ length: 8 }, (_, index) => bytes.readUInt16BE(v2FixedBytes + 2 * index).toString(16));
  return groups.join(':');
}
