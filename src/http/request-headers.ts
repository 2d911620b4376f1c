/**
 * The headers that the gateway itself reads, for its decision, its log and the trace, each with every value that the
 * request gave it, in its order.
 */
export interface DecisiveHeaders {
  readonly apiKey: readonly string[];
  readonly host: readonly string[];
  readonly origin: readonly string[];
  readonly referer: readonly string[];
  readonly forwardedFor: readonly string[];
  readonly forwardedProto: readonly string[];
  readonly requestId: readonly string[];
  readonly transferEncoding: readonly string[];
  readonly contentLength: readonly string[];
  readonly expect: readonly string[];
  readonly upgrade: readonly string[];
  readonly userAgent: readonly string[];
  readonly traceparent: readonly string[];
  readonly tracestate: readonly string[];
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
  ['expect', 'expect'],
  ['upgrade', 'upgrade'],
  ['user-agent', 'userAgent'],
  ['traceparent', 'traceparent'],
  ['tracestate', 'tracestate'],
]);

/** Shared by all headers that a request does not have, which are most of them. */
const none: string[] = [];
Object.freeze(none);

/**
 * Reads the decisive headers from Node's raw list of names and values. Node's own `headers` joins or drops repeated
 * ones, and a second `x-api-key` or Host must be seen.
 */
export function readDecisiveHeaders(rawHeaders: readonly string[]): DecisiveHeaders {
  const headers: Record<keyof DecisiveHeaders, string[]> = {
    apiKey: none,
    host: none,
    origin: none,
    referer: none,
    forwardedFor: none,
    forwardedProto: none,
    requestId: none,
    transferEncoding: none,
    contentLength: none,
    expect: none,
    upgrade: none,
    userAgent: none,
    traceparent: none,
    tracestate: none,
  };
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const field = fieldOf.get((rawHeaders[index] ?? '').toLowerCase());
    if (field === undefined) continue;
    const value = rawHeaders[index + 1] ?? '';
    const values = headers[field];
    if (values === none) headers[field] = [value];
    else values.push(value);
  }
  return headers;
}
