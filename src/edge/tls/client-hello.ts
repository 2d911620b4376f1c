import type { Socket } from 'node:net';

const handshakeRecord = 22;
const clientHello = 1;
const recordHeaderBytes = 5;
/** Maximum length of a TLS record (RFC 8446 5.1). */
const maxRecordBytes = 16_384;
/** Extension number of pre_shared_key, which resumes a TLS 1.3 session (RFC 8446 4.2.11). */
const preSharedKey = 41;
/** Extension number of session_ticket, which resumes a session up to TLS 1.2 (RFC 5077 3.2). */
const sessionTicket = 35;

/**
 * Whether a ClientHello offers to resume a session. The offer is not verified: in the handshake, the session can turn
 * out to be invalid.
 * @param bytes the first bytes of a connection
 * @returns null if more bytes are needed. False if there is no offer, or the bytes are not a ClientHello in one record.
 */
export function offersSession(bytes: Buffer): boolean | null {
  if (bytes.length > 0 && bytes[0] !== handshakeRecord) return false;
  if (bytes.length < recordHeaderBytes) return null;
  const end = recordHeaderBytes + bytes.readUInt16BE(3);
  if (end > recordHeaderBytes + maxRecordBytes) return false;
  if (bytes.length < end) return null;
  try {
    return readOffer(bytes.subarray(recordHeaderBytes, end));
  } catch {
    return false; // the ClientHello is truncated within a field
  }
}

/** @throws RangeError if the ClientHello is truncated within a field */
function readOffer(hello: Buffer): boolean {
  if (hello.readUInt8(0) !== clientHello) return false;
  let at = 4 + 2 + 32; // type and length, version, random
  at += 1 + hello.readUInt8(at); // session id: ignored, because TLS 1.3 clients send a random value
  at += 2 + hello.readUInt16BE(at); // cipher suites
  at += 1 + hello.readUInt8(at); // compression methods
  for (at += 2; at < hello.length;) {
    const type = hello.readUInt16BE(at);
    const length = hello.readUInt16BE(at + 2);
    if (type === preSharedKey || (type === sessionTicket && length > 0)) return true;
    at += 4 + length;
  }
  return false;
}

/**
 * Reads the ClientHello of a connection, and puts its bytes back into the socket for the TLS handshake.
 * @param onHello called once, with whether the client offers to resume a session. Not called if the connection closes
 *   or times out before enough bytes have arrived.
 */
export function peekClientHello(
  socket: Socket,
  timeoutMilliseconds: number,
  onHello: (offersSession: boolean) => void,
): void {
  let received: Buffer = Buffer.alloc(0);
  const release = (): void => {
    clearTimeout(deadline);
    socket.off('readable', onReadable).off('end', onClose).off('close', onClose);
  };
  const onReadable = (): void => {
    const chunk = socket.readableLength === 0 ? null : (socket.read() as Buffer | null);
    if (chunk === null) return;
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
    const offers = offersSession(received);
    if (offers === null) return;
    release();
    socket.unshift(received);
    onHello(offers);
  };
  const onClose = (): void => {
    release();
    socket.destroy();
  };
  const deadline = setTimeout(onClose, timeoutMilliseconds);
  socket.on('readable', onReadable).on('end', onClose).on('close', onClose);
}
