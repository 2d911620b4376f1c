const segmentCharacters = /^\/(?:[A-Za-z0-9\-._~!$&'()*+,=:@/]|%[0-9A-Fa-f]{2})*$/;
/** Octets that mean one thing encoded and another decoded, or that need no encoding: `%2f`, `%5c`, `%25`, `%3b`, controls, `%61`. */
const ambiguousOctet = /%(?:[01][0-9a-f]|7f|2f|5c|25|3b|2[de]|3[0-9]|4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9ae])/i;
const ambiguousSegment = /\/(?:\/|\.{1,2}(?:\/|$))/;

/** A request target in its two parts, as they came. */
export interface RequestTarget {
  readonly path: string;
  /** With its `?`; empty where there is none. */
  readonly query: string;
}

/** Splits a request target at its first `?`. */
export function splitTarget(target: string): RequestTarget {
  const mark = target.indexOf('?');
  return mark === -1 ? { path: target, query: '' } : { path: target.slice(0, mark), query: target.slice(mark) };
}

/**
 * Says whether a path can be read in one way only. Route, permission and upstream would otherwise see different paths:
 * `/dev/%70ayouts` is a customer route to whoever does not decode and a payout route to whoever does.
 */
export function isCanonicalPath(path: string): boolean {
  if (!segmentCharacters.test(path) || ambiguousOctet.test(path) || ambiguousSegment.test(path)) return false;
  return !path.includes('%') || isUtf8(path);
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
