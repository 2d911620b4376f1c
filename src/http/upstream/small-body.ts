import type { Readable } from 'node:stream';
import type { Cancellation } from '../cancellation.js';
import { GatewayError } from '../errors.js';

/** A body of at most this many bytes, as its client declares it, goes upstream in one piece. */
export const smallBodyBytes = 16_384;

/**
 * Reads a small body whole: it needs no streams on its way then, and of one that breaks off or stalls the upstream never
 * hears.
 * @param deadline of silence, put off by each piece
 * @throws GatewayError client_closed where it breaks off, or the reason of the cancellation
 */
export function readSmallBody(
  body: Readable,
  isWhole: () => boolean,
  cancellation: Cancellation,
  deadline: NodeJS.Timeout,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let settled = false;
    const fail = (error: GatewayError): void => {
      settled = true;
      reject(error);
    };
    const brokeOff = (): void => {
      if (!settled) fail(new GatewayError('client_closed', 'the client went away'));
    };
    cancellation.listen(fail);
    body.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      if (!settled) deadline.refresh();
    });
    body.once('close', brokeOff);
    body.once('end', () => {
      if (settled) return;
      settled = true;
      const [only] = chunks;
      if (!isWhole()) reject(new GatewayError('client_closed', 'the client cut the body short'));
      else resolve(only !== undefined && chunks.length === 1 ? only : Buffer.concat(chunks));
    });
  });
}
