import type { Readable } from 'node:stream';
import { GatewayError } from '../request/errors.js';
import type { BodyBuffers } from './body-buffers.js';
import type { UpstreamRequest } from './upstream-request.js';

/** A body of at most this many bytes arrives before its request gets a place, and of a longer one so many and one more. */
const bufferedBytes = 65_536;
const nothing = Buffer.alloc(0);

/** Where a body is buffered, and how long it may be. */
export interface Buffering {
  readonly buffers: BodyBuffers;
  readonly maxBodyBytes: number;
}

/**
 * Buffers the beginning of a body: its request takes no place meanwhile, so that a client that trickles keeps nobody out. Of a
 * short body that breaks off or stalls the upstream never hears. A body that cannot be had fails its request: client_closed,
 * body_too_large, overloaded where the memory is used up, or the reason of the cancellation.
 * @param begin called at most once, with what has come, and with what is still to come behind it: null where nothing is
 */
export function bufferBody(
  request: UpstreamRequest,
  body: Readable,
  { buffers, maxBodyBytes }: Buffering,
  begin: (bytes: Buffer, rest: Readable | null) => void,
): void {
  let bytes: Buffer = nothing;
  let length = 0;
  let isSettled = false;
  const settle = (): void => {
    isSettled = true;
    body.off('data', onData).off('end', onEnd).off('close', onClose);
    buffers.release(held);
  };
  const fail = (error: GatewayError): void => {
    if (isSettled) return;
    settle();
    request.onUploadEnd();
    request.failed(error);
  };
  const onData = (chunk: Buffer): void => {
    const grown = append(bytes, length, chunk);
    buffers.grow(held, grown.length - bytes.length);
    bytes = grown;
    length += chunk.length;
    if (length > maxBodyBytes)
      fail(new GatewayError('body_too_large', `the body is longer than ${maxBodyBytes} bytes`));
    if (isSettled || length <= bufferedBytes) return;
    body.pause();
    settle();
    begin(bytes.subarray(0, length), body);
  };
  const onEnd = (): void => {
    if (!request.bodyIsWhole()) {
      fail(new GatewayError('client_closed', 'the client cut the body short'));
      return;
    }
    settle();
    begin(bytes.subarray(0, length), null);
  };
  const onClose = (): void => {
    fail(new GatewayError('client_closed', 'the client went away'));
  };
  const held = buffers.hold(request.merchantId, () => {
    fail(new GatewayError('overloaded', 'the memory for bodies that have not arrived yet is used up'));
  });
  if (body.destroyed) {
    onClose(); // nothing tells of that any more
    return;
  }
  body.on('data', onData).on('end', onEnd).on('close', onClose);
  request.cancellation.listen(fail);
}

/** Puts a piece behind what has come. In one buffer: each piece by itself, of one byte say, takes hundreds. */
function append(bytes: Buffer, length: number, chunk: Buffer): Buffer {
  if (length === 0) return chunk;
  const needed = length + chunk.length;
  const most = Math.max(needed, bufferedBytes + 1);
  const room = needed <= bytes.length ? bytes : Buffer.allocUnsafeSlow(Math.min(2 * needed, most));
  if (room !== bytes) bytes.copy(room, 0, 0, length);
  chunk.copy(room, length);
  return room;
}
