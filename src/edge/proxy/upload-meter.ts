import { type Readable, Transform } from 'node:stream';
import { GatewayError } from '../request/errors.js';
import type { UpstreamRequest } from './upstream-request.js';

const lookMilliseconds = 1_000;

/** What an upload may take. */
export interface UploadLimits {
  readonly maxBodyBytes: number;
  /** How many bytes a second its client has to send, on average over some seconds. */
  readonly minBodyBytesPerSecond: number;
  /** Called when it ends because its client was slower. */
  onSlowBody(): void;
}

/**
 * Passes a client's body on, piece by piece, and ends it where it grows past the limit, or its client goes away or is too slow:
 * it has a place all the while.
 */
export class UploadMeter extends Transform {
  readonly #request: Pick<UpstreamRequest, 'onBody' | 'onUploadEnd' | 'bodyIsWhole'>;
  readonly #limits: UploadLimits;
  readonly #deadline: NodeJS.Timeout;
  #bytes = 0;

  /**
   * @param begin what has come of the body already
   * @param deadline of silence, put off by each piece
   */
  constructor(
    request: Pick<UpstreamRequest, 'onBody' | 'onUploadEnd' | 'bodyIsWhole'>,
    begin: Buffer,
    rest: Readable,
    limits: UploadLimits,
    deadline: NodeJS.Timeout,
  ) {
    super();
    this.#request = request;
    this.#limits = limits;
    this.#deadline = deadline;
    // Not `pipeline`: that would destroy the client's socket together with the body, and the answer could not be given.
    const end = (): void => {
      if (!this.writableEnded) this.destroy(new GatewayError('client_closed', 'the client went away'));
    };
    const looks = this.#watch(new BodyRate(limits.minBodyBytesPerSecond, begin.length));
    rest.once('close', end);
    this.once('close', () => {
      clearInterval(looks);
      rest.off('close', end).unpipe(this);
      request.onUploadEnd();
    });
    this.write(begin);
    rest.pipe(this);
  }

  /** Whether the next piece is the client's to send. */
  get waitsForClient(): boolean {
    return !this.writableEnded && this.readableLength === 0 && this.readableFlowing === true;
  }

  override _transform(
    chunk: Buffer,
    _encoding: BufferEncoding,
    done: (error: Error | null, chunk?: Buffer) => void,
  ): void {
    this.#bytes += chunk.length;
    this.#deadline.refresh();
    this.#request.onBody(chunk.length);
    const { maxBodyBytes } = this.#limits;
    if (this.#bytes > maxBodyBytes) {
      done(new GatewayError('body_too_large', `the body is longer than ${maxBodyBytes} bytes`));
    } else done(null, chunk);
  }

  override _flush(done: (error: Error | null) => void): void {
    done(this.#request.bodyIsWhole() ? null : new GatewayError('client_closed', 'the client cut the body short'));
  }

  #watch(rate: BodyRate): NodeJS.Timeout {
    return setInterval(() => {
      if (!rate.isTooLow(this.#bytes, this.waitsForClient)) return;
      this.#limits.onSlowBody();
      const detail = `less of the body came than ${this.#limits.minBodyBytesPerSecond} bytes a second`;
      this.destroy(new GatewayError('request_timeout', detail));
    }, lookMilliseconds);
  }
}

/** Over how many seconds a client's rate is measured. */
const windowSeconds = 5;

/**
 * Whether a client sends its body fast enough. Only seconds in which the client is waited for count: while its service takes
 * nothing, the client cannot send.
 */
export class BodyRate {
  readonly #bytesPerSecond: number;
  #seconds = 0;
  /** How many bytes had come when the window began. */
  #before: number;

  /** @param bytes how many had come before it is measured */
  constructor(bytesPerSecond: number, bytes: number) {
    this.#bytesPerSecond = bytesPerSecond;
    this.#before = bytes;
  }

  /**
   * Says whether too little has come; asked each second.
   * @param bytes how many have come by now
   * @param waitsForClient whether the next byte is the client's to send
   */
  isTooLow(bytes: number, waitsForClient: boolean): boolean {
    if (waitsForClient) this.#seconds += 1;
    if (this.#seconds < windowSeconds) return false;
    const isTooLow = bytes - this.#before < windowSeconds * this.#bytesPerSecond;
    this.#seconds = 0;
    this.#before = bytes;
    return isTooLow;
  }
}
