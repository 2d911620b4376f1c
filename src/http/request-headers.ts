/**
 * The headers that the gateway itself reads, for its decision and for the trace, each with every value that the request
 * gave it, in its order.
 */
export interface DecisiveHeaders {
  readonly apiKey: string[];
  readonly host: string[];
  readonly origin: string[];
  readonly referer: string[];
  readonly forwardedFor: string[];
  readonly forwardedProto: string[];
  readonly requestId: string[];
  readonly transferEncoding: string[];
  readonly contentLength: string[];
  readonly traceparent: string[];
  readonly tracestate: string[];
}

const fieldOf: ReadonlyMap<string, keyof DecisiveHeaders> = new Map([
  ['x-api-key', 'apiKey'],
  ['host', 'host'],
  ['origin', 'origin'],
  ['referer', 'referer'],
  ['x-forwarded-for', 'forwardedFor'],
  ['x-forwarded-proto', 'forwardedProto'],
  ['x-request-id', 'requestId'],
  ['transfer-encoding', 'transferEncoding'],
  ['content-length', 'contentLength'],
  ['traceparent', 'traceparent'],
  ['tracestate', 'tracestate'],
]);

/**
 * Reads the decisive headers from Node's raw list of names and values. Node's own `headers` joins or drops repeated
 * ones, and a second `x-api-key` or Host must be seen.
 */
export function readDecisiveHeaders(rawHeaders: readonly string[]): DecisiveHeaders {
  const headers: DecisiveHeaders = {
    apiKey: [],
    host: [],
    origin: [],
    referer: [],
    forwardedFor: [],
    forwardedProto: [],
    requestId: [],
    transferEncoding: [],
    contentLength: [],
    traceparent: [],
    tracestate: [],
  };
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const field = fieldOf.get((rawHeaders[index] ?? '').toLowerCase());
    if (field !== undefined) headers[field].push(rawHeaders[index + 1] ?? '');
  }
  return headers;
}
