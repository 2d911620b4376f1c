import { type Readable, Transform } from 'node:stream';
import { atEndOfTurn } from '../../node/end-of-turn.js';
import { GatewayError } from '../request/errors.js';
import type { UpstreamRequest } from './upstream-request.js';

const checkMilliseconds = 1_000;

/** Limits of an upload. */
export interface UploadLimits {
  readonly maxBodyBytes: number;
  /** Minimum rate at which the client must send, in bytes per second, averaged over `windowSeconds`. */
  readonly minBodyBytesPerSecond: number;
  /** Called when an upload is aborted because the client sends more slowly than the minimum rate. */
  onSlowBody(): void;
}

/**
 * Streams a client's body to the upstream. The request occupies a permit (slot at the upstream) during the upload. To
 * free the permit, the upload is aborted if the body exceeds its limit, or if the client disconnects or is too slow.
 */
export class UploadMeter extends Transform {
  readonly #request: Pick<UpstreamRequest, 'onBody' | 'onUploadEnd' | 'bodyIsWhole'>;
  readonly #limits: UploadLimits;
  readonly #deadline: NodeJS.Timeout;
  #bytes = 0;

  /**
   * @param begin the part of the body that has already arrived
   * @param rest the stream of the remaining body
   * @param deadline timer of the upstream's timeout; each chunk restarts it
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
    // `pipeline` is not used here. It would destroy the client's socket together with the body, and no response could
    // be sent.
    const end = (): void => {
      if (!this.writableEnded) this.destroy(new GatewayError('client_closed', 'the client closed the connection'));
    };
    const rateCheck = this.#watch(new BodyRate(limits.minBodyBytesPerSecond, begin.length));
    rest.once('close', end);
    this.once('close', () => {
      clearInterval(rateCheck);
      rest.off('close', end).unpipe(this);
      request.onUploadEnd();
    });
    this.write(begin);
    rest.pipe(this);
  }

  /** Number of body bytes received so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether the upload is waiting for the client, not for the upstream. */
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
    done(this.#request.bodyIsWhole() ? null : new GatewayError('client_closed', 'the client sent an incomplete body'));
  }

  #watch(rate: BodyRate): NodeJS.Timeout {
    const check = (): void => {
      if (this.destroyed || !rate.isTooLow(this.#bytes, this.waitsForClient)) return;
      this.#limits.onSlowBody();
      const detail = `the body arrived more slowly than ${this.#limits.minBodyBytesPerSecond} bytes per second`;
      this.destroy(new GatewayError('request_timeout', detail));
    };
    // Check after the next read: after a stall of the process, Node runs due timers before it reads pending bytes.
    return setInterval(atEndOfTurn, checkMilliseconds, check);
  }
}

/** Length of the window for measuring a client's rate, in seconds. */
const windowSeconds = 5;

/**
 * Measures whether a client sends its body fast enough. Counts only the seconds in which the upload waits for the
 * client, because the client cannot send during backpressure from the service.
 */
export class BodyRate {
  readonly #bytesPerSecond: number;
  #seconds = 0;
  /** Number of bytes received before the current window. */
  #before: number;

  /**
   * @param bytesPerSecond minimum rate
   * @param bytes number of bytes received before the measurement
   */
  constructor(bytesPerSecond: number, bytes: number) {
    this.#bytesPerSecond = bytesPerSecond;
    this.#before = bytes;
  }

  /**
   * Whether this call completes a window in which the rate was too low. Returns false while a window is incomplete.
   * Must be called once per second.
   * @param bytes bytes received so far
   * @param waitsForClient whether the upload is waiting for the client
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
