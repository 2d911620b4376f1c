import type { ConnectionFacts } from './connection-facts.js';

/** A request's head as it came, and the connection that it came on. Made once; nothing of it changes. */
export class RequestData {
  readonly target: RequestTarget;
  /** Those that the gateway reads. Node's own `headers` would be built anew for each request, and is asked for nothing. */
  readonly headers: DecisiveHeaders;

  constructor(
    readonly method: string,
    /** `1.1` or `1.0`; whatever Node's parser lets pass beside them is refused. */
    readonly httpVersion: string,
    target: string,
    /** Names and values, flat, as the client sent them. */
    readonly rawHeaders: readonly string[],
    readonly connection: ConnectionFacts,
    /** When the headers had arrived, in milliseconds since 1970. */
    readonly receivedAt: number,
  ) {
    this.target = splitTarget(target);
    this.headers = readDecisiveHeaders(rawHeaders);
  }

  /** Whether the request has a body, or is to have one. */
  get hasBody(): boolean {
    return this.headers.transferEncoding.length > 0 || (this.declaredBytes ?? 0) > 0;
  }

  /** How long the body is, as the client says; null where it does not say. */
  get declaredBytes(): number | null {
    const [length] = this.headers.contentLength;
    return length === undefined ? null : Number(length);
  }

  /** Whether the client waits to be told that its body is wanted. */
  get expectsContinue(): boolean {
    const { expect } = this.headers;
    return expect.length > 0 && expect.join().toLowerCase() === '100-continue' && this.httpVersion !== '1.0';
  }

  /** The host that was asked for; empty where none was named. */
  get host(): string {
    return this.headers.host[0] ?? '';
  }
}

/** What most paths are, and what no service decodes or normalises. */
const plainPath = /^(?:\/[\w-]+)+$/;
/** All that RFC 3986 3.3 has in a path. */
const pathForm = /^\/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*$/;
/** A segment that is empty, `.` or `..`, perhaps once its dots are decoded and its parameters cut off. */
const climbingSegment = /\/(?:(?:\.|%2e){0,2}(?:[/;]|%3b)|(?:\.|%2e){1,2}$)/i;
/** Encoded control characters, `/`, `\` and `%`, which would be decoded twice. */
const splittingOctet = /%(?:[01][0-9a-f]|7f|2f|5c|25)/i;

/** A request target in its parts, as they came. */
export interface RequestTarget {
  /** Host and port of a target in absolute form, and its scheme in small letters; null of one that is a path. */
  readonly absolute: { readonly scheme: string; readonly authority: string } | null;
  readonly path: string;
  /** With its `?`; empty where there is none. */
  readonly query: string;
}

/** `https://host:port/path?query`, which a server has to take as well (RFC 9112 3.2.2). */
const absoluteForm = /^(https?):\/\/([^/?#]*)(.*)$/i;

/** Splits a request target at its first `?`, and what is in front of its path from one in absolute form. */
export function splitTarget(target: string): RequestTarget {
  const [, scheme = '', authority = '', rest = ''] = (target.startsWith('/') ? null : absoluteForm.exec(target)) ?? [];
  const absolute = scheme === '' ? null : { scheme: scheme.toLowerCase(), authority };
  const origin = absolute === null ? target : rest;
  const mark = origin.indexOf('?');
  const path = mark === -1 ? origin : origin.slice(0, mark);
  return {
    absolute,
    path: absolute !== null && path === '' ? '/' : path,
    query: mark === -1 ? '' : origin.slice(mark),
  };
}

/**
 * Says whether a path has the same segments for every service, however it decodes and normalises. Services climb out of a
 * route with `..;` and split a segment at `%2f`.
 */
export function hasFixedSegments(path: string): boolean {
  if (plainPath.test(path)) return true;
  if (!pathForm.test(path) || climbingSegment.test(path)) return false;
  return !path.includes('%') || (!splittingOctet.test(path) && isUtf8(path));
}

/** Overlong forms of `/` and `.` are no UTF-8, but some decoders read them. */
function isUtf8(path: string): boolean {
  try {
    decodeURIComponent(path);
    return true;
  } catch {
    return false;
  }
}

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

/**
 * Headers as names and values by turns; a value may be several. An object made by spreading others costs as much as all
 * checks of a request together, and V8 keeps a shape for each.
 */
export type HeaderList = (string | string[])[];

/** Whether a list has a header of this name, in the same case. */
export function hasHeader(list: Readonly<HeaderList>, name: string): boolean {
  for (let index = 0; index < list.length; index += 2) if (list[index] === name) return true;
  return false;
}
