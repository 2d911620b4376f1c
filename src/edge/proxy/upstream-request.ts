import type { Readable } from 'node:stream';
import type { PoolOptions } from '../http1/connection-pool.js';
import type { UpstreamResponse } from '../http1/response-reader.js';
import type { Cancellation } from '../request/exchange.js';
import type { GatewayError } from '../request/errors.js';
import type { BodyBuffers } from './body-buffers.js';

/** Connection settings and limits of an upstream. */
export interface UpstreamOptions extends Omit<PoolOptions, 'origin' | 'connectMilliseconds' | 'maxConnections'> {
  readonly name: string;
  /** Origin: `http://host:port` or `https://host:port`. */
  readonly url: string;
  /** The longest time without data from the service: before the response headers, or within the response body. */
  readonly timeoutSeconds: number;
  readonly maxInFlight: number;
  readonly maxBodyBytes: number;
  /** Minimum rate at which a client must send a long body, in bytes per second, averaged over some seconds. */
  readonly minBodyBytesPerSecond: number;
  /** The memory for bodies that have not arrived completely, shared by all upstreams. */
  readonly buffers: BodyBuffers;
}

/** A request as sent to the upstream, with the callbacks for its progress and outcome. */
export interface UpstreamRequest {
  /** The merchant that sent the request. */
  readonly merchantId: string;
  readonly method: string;
  /** Path (without the gateway's base path) and query, as the client sent them. */
  readonly target: string;
  /** Alternating header names and values. */
  readonly headers: string[];
  /** The client's body; null without a body. */
  readonly body: Readable | null;
  /** The body length that the client declared; null if unknown. */
  readonly bodyBytes: number | null;
  readonly cancellation: Cancellation;
  /** Called with the size of each forwarded part of the body. */
  onBody(bytes: number): void;
  /**
   * Returns the body if its declared length has arrived completely. Otherwise null, also for a body of unknown length.
   */
  bodyAtHand(): Buffer | null;
  /** Whether the body is complete. Checked at the end of the stream, so that a truncated body is not accepted. */
  bodyIsWhole(): boolean;
  /**
   * Called when a connection begins to carry the request. From then on, the service could have executed the request.
   */
  onStart(): void;
  /** Called when a streamed body is no longer read, because it is complete or the request has failed. */
  onUploadEnd(): void;
  /** Called when the response headers have arrived. */
  onHeaders(): void;
  /** Receives the response, with a complete body or a body stream. Its hop-by-hop headers have been removed. */
  onResponse(response: UpstreamResponse): void;
  /**
   * Called when the request failed without a response. The error is upstream_busy, upstream_failed, upstream_timeout,
   * overloaded, body_too_large, client_closed, request_timeout, or the reason of the cancellation.
   */
  failed(error: GatewayError): void;
}
