import { Transform } from 'node:stream';
import type { Readable } from 'node:stream';
import { GatewayError } from '../errors.js';
import type { UpstreamRequest } from './upstream.js';

/** Passes a client's body on, piece by piece, and ends it where it grows past the limit or its client goes away. */
export class UploadMeter extends Transform {
  readonly #request: Pick<UpstreamRequest, 'onBody' | 'onUploadEnd' | 'bodyIsWhole'>;
  readonly #maxBytes: number;
  readonly #deadline: NodeJS.Timeout;
  #bytes = 0;

  /** @param deadline of silence, put off by each piece */
  constructor(
    request: Pick<UpstreamRequest, 'onBody' | 'onUploadEnd' | 'bodyIsWhole'>,
    body: Readable,
    maxBytes: number,
    deadline: NodeJS.Timeout,
  ) {
    super();
    this.#request = request;
    this.#maxBytes = maxBytes;
    this.#deadline = deadline;
    // Not `pipeline`: that would destroy the client's socket together with the body, and the answer could not be given.
    const end = (): void => {
      if (!this.writableEnded) this.destroy(new GatewayError('client_closed', 'the client went away'));
    };
    body.once('close', end);
    this.once('close', () => {
      body.off('close', end).unpipe(this);
      request.onUploadEnd();
    });
    body.pipe(this);
  }

  /** Whether the next piece is the client's to send. */
  get waitsForClient(): boolean {
    return !this.writableEnded && this.readableLength === 0;
  }

  override _transform(
    chunk: Buffer,
    _encoding: BufferEncoding,
    done: (error: Error | null, chunk?: Buffer) => void,
  ): void {
    this.#bytes += chunk.length;
    this.#deadline.refresh();
    this.#request.onBody(chunk.length);
    if (this.#bytes > this.#maxBytes) {
      done(new GatewayError('body_too_large', `the body is longer than ${this.#maxBytes} bytes`));
    } else done(null, chunk);
  }

  override _flush(done: (error: Error | null) => void): void {
    done(this.#request.bodyIsWhole() ? null : new GatewayError('client_closed', 'the client cut the body short'));
  }
}
