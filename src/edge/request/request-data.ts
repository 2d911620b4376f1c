import type { ConnectionFacts } from './connection-facts.js';

/** The head of a request as received, with facts about its connection. Immutable. */
export class RequestData {
  readonly target: RequestTarget;
  /** Headers that the gateway reads. Node's own `headers` is not used: Node would build it for each request. */
  readonly headers: DecisiveHeaders;
  /** Body length in bytes from Content-Length; null without Content-Length. */
  readonly declaredBytes: number | null;
  /** Whether the request declares a body. */
  readonly hasBody: boolean;

  constructor(
    readonly method: string,
    /** `1.1` or `1.0`; protocol.ts rejects any other version that Node's parser accepts. */
    readonly httpVersion: string,
    target: string,
    /** Alternating names and values, as the client sent them. */
    readonly rawHeaders: readonly string[],
    readonly connection: ConnectionFacts,
    /** Arrival time of the headers in milliseconds since 1970. */
    readonly receivedAt: number,
  ) {
    this.target = splitTarget(target);
    this.headers = readDecisiveHeaders(rawHeaders);
    const [length] = this.headers.contentLength;
    this.declaredBytes = length === undefined ? null : Number(length);
    this.hasBody = this.headers.transferEncoding.length > 0 || (this.declaredBytes ?? 0) > 0;
  }

  /** Whether the client waits for 100 Continue before it sends the body. */
  get expectsContinue(): boolean {
    const { expect } = this.headers;
    return expect.length > 0 && expect.join().toLowerCase() === '100-continue' && this.httpVersion !== '1.0';
  }

  /** The Host header; empty if missing. */
  get host(): string {
    return this.headers.host[0] ?? '';
  }
}

/** Matches a path that neither decoding nor normalizing changes, such as `/v1/payouts`. Most paths match. */
const plainPath = /^(?:\/[\w-]+)+$/;
/** Matches a path that contains only characters that RFC 3986 3.3 allows. */
const pathForm = /^\/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*$/;
/**
 * Matches a segment that is empty, `.` or `..`, even if its dots are percent-encoded or followed by `;` parameters.
 * Such a segment could lead to another route. An empty last segment (a trailing `/`) does not match.
 */
const climbingSegment = /\/(?:(?:\.|%2e){0,2}(?:[/;]|%3b)|(?:\.|%2e){1,2}$)/i;
/**
 * Matches percent-encoded control characters, `/`, `\` and `%`. Some services split a segment at these characters; an
 * encoded `%` could be decoded twice.
 */
const splittingOctet = /%(?:[01][0-9a-f]|7f|2f|5c|25)/i;

/** The parts of a request target, as received. */
export interface RequestTarget {
  /** Scheme in lower case, and host with port, of a target in absolute form; null for a target in origin form. */
  readonly absolute: { readonly scheme: string; readonly authority: string } | null;
  readonly path: string;
  /** The query with its leading `?`; empty without a query. */
  readonly query: string;
}

/** Matches a target in absolute form: `https://host:port/path?query`. A server must accept it (RFC 9112 3.2.2). */
const absoluteForm = /^(https?):\/\/([^/?#]*)(.*)$/i;

/** Splits a request target into scheme and authority (absolute form only), path and query. */
export function splitTarget(target: string): RequestTarget {
  const parts = target.startsWith('/') ? null : absoluteForm.exec(target);
  const [, scheme = '', authority = '', origin = ''] = parts ?? ['', '', '', target];
  const mark = origin.indexOf('?');
  const path = mark === -1 ? origin : origin.slice(0, mark);
  const query = origin.slice(path.length);
  if (scheme === '') return { absolute: null, path, query };
  return { absolute: { scheme: scheme.toLowerCase(), authority }, path: path === '' ? '/' : path, query };
}

/**
 * Whether every service sees the same path segments, however it decodes and normalizes the path. A service that sees
 * others could execute another route: some services treat `..;` as `..`, and some split a segment at `%2f`.
 */
export function hasFixedSegments(path: string): boolean {
  if (plainPath.test(path)) return true;
  if (!pathForm.test(path) || climbingSegment.test(path)) return false;
  return !path.includes('%') || (!splittingOctet.test(path) && isUtf8(path));
}

/**
 * Whether the decoded path is valid UTF-8. Overlong encodings of `/` and `.` are invalid UTF-8, but some decoders
 * accept them.
 */
function isUtf8(path: string): boolean {
  try {
    decodeURIComponent(path);
    return true;
  } catch {
    return false;
  }
}

/**
 * Headers that the gateway itself reads for its decision, its log and the trace. Each field holds all values of one
 * header, in request order.
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

/** The value of every absent header. Most headers are absent, so sharing one array saves memory. */
const absent: string[] = [];
Object.freeze(absent);

/**
 * Collects the headers that the gateway reads, from Node's raw list of names and values. Node's own `headers` joins or
 * drops repeated fields, which would hide a second `x-api-key` or Host.
 */
export function readDecisiveHeaders(rawHeaders: readonly string[]): DecisiveHeaders {
  const headers: Record<keyof DecisiveHeaders, string[]> = {
    apiKey: absent,
    host: absent,
    origin: absent,
    referer: absent,
    forwardedFor: absent,
    forwardedProto: absent,
    requestId: absent,
    transferEncoding: absent,
    contentLength: absent,
    expect: absent,
    upgrade: absent,
    userAgent: absent,
    traceparent: absent,
    tracestate: absent,
  };
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const field = fieldOf.get((rawHeaders[index] ?? '').toLowerCase());
    if (field === undefined) continue;
    const value = rawHeaders[index + 1] ?? '';
    const values = headers[field];
    if (values === absent) headers[field] = [value];
    else values.push(value);
  }
  return headers;
}

/**
 * Alternating header names and values; a value can be an array. Building header objects by spread would cost as much as
 * all checks of a request, and V8 would store a hidden class for each object.
 */
export type HeaderList = (string | string[])[];

/** Whether a header list contains this name. The comparison is case-sensitive. */
export function hasHeader(list: Readonly<HeaderList>, name: string): boolean {
  for (let index = 0; index < list.length; index += 2) if (list[index] === name) return true;
  return false;
}
