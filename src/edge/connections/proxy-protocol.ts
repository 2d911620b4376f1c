import type { Socket } from 'node:net';
import { type IpAddress, parseIpAddress } from '../../policy/ip-address.js';

/** Whom a PROXY header names: an address and its port. */
interface ConnectionSource {
  readonly address: IpAddress;
  readonly port: number;
}

/** What became of a connection that has to begin with a PROXY protocol header. */
export interface HeaderReader {
  /** Told once, with the connection at the byte behind its header, and how many such bytes have come already. */
  readonly onHeader: (source: ConnectionSource | null, bufferedBytes: number) => void;
  /** Told once, when the connection is closed for want of a header; not of one that its peer closed before a byte. */
  readonly onRefused: () => void;
}

/**
 * Takes the PROXY protocol header off a connection. Bytes that came behind it, in the same packet too, are given back to
 * the socket, so that whoever reads next (TLS, HTTP) begins with the first of them.
 * @param timeoutMilliseconds for the whole header
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

/** A part of what has come, so that a flood in one packet is not copied whole. */
function readChunk(socket: Socket): Buffer | null {
  if (socket.readableLength === 0) return null;
  return socket.read(Math.min(socket.readableLength, maxProxyHeaderBytes)) as Buffer | null;
}

/** What the first bytes of a connection are, as far as they have come. */
type ProxyHeader =
  | { readonly kind: 'incomplete' | 'invalid' }
  /** `source` is null where the proxy speaks for itself, or for nobody whose address it knows. */
  | { readonly kind: 'header'; readonly source: ConnectionSource | null; readonly length: number };

const incomplete: ProxyHeader = { kind: 'incomplete' };
const invalid: ProxyHeader = { kind: 'invalid' };
const v1Start = Buffer.from('PROXY ', 'latin1');
const v2Signature = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
/** The longest line of version 1 with its CRLF: `PROXY UNKNOWN`, two long IPv6 addresses and two ports. */
const v1MaxBytes = 107;
const v2FixedBytes = 16;
/** Addresses and TLVs. The specification allows 65,535; a balancer's own, certificates of clients with them, are below. */
const v2MaxPayloadBytes = 4_096;

/** The longest header that is read, in bytes. */
const maxProxyHeaderBytes = v2FixedBytes + v2MaxPayloadBytes;

/**
 * Reads a PROXY protocol header (haproxy.org, proxy-protocol.txt), version 1 or 2, from the start of a connection.
 * What follows the header is not looked at, so that the answer does not depend on how the bytes were cut into packets.
 */
export function parseProxyHeader(bytes: Buffer): ProxyHeader {
  if (beginsLike(bytes, v2Signature)) return bytes.length < v2FixedBytes ? incomplete : parseV2(bytes);
  if (beginsLike(bytes, v1Start)) return parseV1(bytes);
  return invalid;
}

/** Says whether the bytes, as far as they have come, are those of the start. */
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
  // The rest of an UNKNOWN line is to be ignored, whatever it is.
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

/** Bytes that a family's addresses and ports take, by the byte that names family and transport. */
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
  // A client that does not come over TCP on IP has no address to judge it by.
  if (!speaksForItself && (stream === undefined || payloadBytes < stream.bytes)) return invalid;
  const length = v2FixedBytes + payloadBytes;
  if (bytes.length < length) return incomplete;
  if (speaksForItself || stream === undefined) return { kind: 'header', source: null, length };
  // Behind both addresses: the port of the source, and that of the destination.
  return headerOf(stream.sourceOf(bytes), bytes.readUInt16BE(v2FixedBytes + stream.bytes - 4), length);
}

function ipv4Text(bytes: Buffer): string {
  return bytes.subarray(v2FixedBytes, v2FixedBytes + 4).join('.');
}

function ipv6Text(bytes: Buffer): string {
  const groups = Array.from({ length: 8 }, (_, index) => bytes.readUInt16BE(v2FixedBytes + 2 * index).toString(16));
  return groups.join(':');
}
