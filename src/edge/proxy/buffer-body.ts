import type { Readable } from 'node:stream';
import { GatewayError } from '../request/errors.js';
import type { BodyBuffers } from './body-buffers.js';
import type { UpstreamRequest } from './upstream-request.js';

/**
 * A request takes a permit (slot at the upstream) once its whole body, or more than this number of bytes, has arrived.
 */
const bufferedBytes = 65_536;
const nothing = Buffer.alloc(0);

/** The memory for buffered bodies, and the maximum body length. */
export interface Buffering {
  readonly buffers: BodyBuffers;
  readonly maxBodyBytes: number;
}

/**
 * Buffers the start of a body before its request takes a permit (slot at the upstream), so that slow clients occupy no
 * permits. A short body that breaks off or stalls never reaches the upstream. Fails the request with client_closed,
 * body_too_large, overloaded (memory exhausted), or the reason for which the request was cancelled.
 * @param begin called at most once, with the buffered bytes and the stream of the remaining bytes. The stream is null
 *   if no bytes remain.
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
      fail(new GatewayError('client_closed', 'the client sent an incomplete body'));
      return;
    }
    settle();
    begin(bytes.subarray(0, length), null);
  };
  const onClose = (): void => {
    fail(new GatewayError('client_closed', 'the client closed the connection'));
  };
  const held = buffers.hold(request.merchantId, () => {
    fail(new GatewayError('overloaded', 'the memory for incomplete request bodies is exhausted'));
  });
  if (body.destroyed) {
    onClose(); // a destroyed stream emits no further event
    return;
  }
  body.on('data', onData).on('end', onEnd).on('close', onClose);
  request.cancellation.listen(fail);
}

/**
 * Appends a chunk to one growing buffer. Separate buffers would take hundreds of bytes for each chunk, even for chunks
 * of one byte.
 */
function append(bytes: Buffer, length: number, chunk: Buffer): Buffer {
  if (length === 0) return chunk;
  const needed = length + chunk.length;
  const most = Math.max(needed, bufferedBytes + 1);
  const room = needed <= bytes.length ? bytes : Buffer.allocUnsafeSlow(Math.min(2 * needed, most));
  if (room !== bytes) bytes.copy(room, 0, 0, length);
  chunk.copy(room, length);
  return room;
}
