import type { Socket } from 'node:net';
import type { IpAddress } from '../../policy/ip-address.js';
import { maxProxyHeaderBytes, parseProxyHeader } from './parse-header.js';

/** What became of a connection that has to begin with a PROXY protocol header. */
export interface HeaderReader {
  /** Told once, with the connection at the byte behind its header, and how many such bytes have come already. */
  readonly onHeader: (source: IpAddress | null, bufferedBytes: number) => void;
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
