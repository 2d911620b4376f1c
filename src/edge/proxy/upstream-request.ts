import type { Readable } from 'node:stream';
import type { UpstreamAnswer } from '../http1/answer-parser.js';
import type { Cancellation } from '../request/exchange.js';
import type { GatewayError } from '../request/errors.js';
import type { BodyBuffers } from './body-buffers.js';

/** How an upstream is reached, and what it may cost. */
export interface UpstreamOptions {
  readonly name: string;
  /** Origin: `http://host:port` or `https://host:port`. */
  readonly url: string;
  /** How long it may be silent, with a request and with the rest of an answer. */
  readonly timeoutSeconds: number;
  readonly maxInFlight: number;
  /** How many idle connections may be bound to merchants. */
  readonly boundIdle: number;
  /** Whether it reads every request body, so that merchants can share connections behind one. */
  readonly readsBodies: boolean;
  /** PEM of the authority that signed its certificate; null: those that Node trusts. */
  readonly ca: Buffer | null;
  readonly maxBodyBytes: number;
  /** How many bytes a second a client has to send of a long body, on average over some seconds. */
  readonly minBodyBytesPerSecond: number;
  /** Where bodies wait until they have arrived. */
  readonly buffers: BodyBuffers;
  /** How long a connection rests before it carries another request, in milliseconds. */
  readonly restMilliseconds: number;
  /** Called when it sent bytes that no request had asked for. */
  readonly onUnsolicited: () => void;
}

/** A request as the upstream gets it. */
export interface UpstreamRequest {
  /** Whose it is. */
  readonly merchantId: string;
  readonly method: string;
  /** Path and query, as they came. */
  readonly target: string;
  /** Names and values, flat. */
  readonly headers: string[];
  /** The client's body; null where it sent none. */
  readonly body: Readable | null;
  /** How long the client says that it is; null where it does not say. */
  readonly bodyBytes: number | null;
  readonly cancellation: Cancellation;
  /** Hears the size of each piece of the body that is passed on. */
  onBody(bytes: number): void;
  /** Takes the body, where all of it has come already; null where some is to be waited for, or there is none. */
  bodyAtHand(): Buffer | null;
  /** Whether all of the body has come, asked when it ends: half of one must not pass for a whole one. */
  bodyIsWhole(): boolean;
  /** Hears that a connection carries it: from then on nobody knows whether it was carried out. */
  onStart(): void;
  /** Hears that no more of a body that was passed on in pieces is wanted, because it is whole or for another reason. */
  onUploadEnd(): void;
  /** Hears that the headers of the answer have come. */
  onHeaders(): void;
  /** Hears the answer, without its hop-by-hop headers: the whole of it, or its head and a body that is still to come. */
  answered(answer: UpstreamAnswer): void;
  /** Hears, in place of an answer: upstream_busy, upstream_failed, upstream_timeout, overloaded, body_too_large,
   * client_closed, request_timeout, or the reason of the cancellation. */
  failed(error: GatewayError): void;
}
