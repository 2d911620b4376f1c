const segmentCharacters = /^\/(?:[A-Za-z0-9\-._~!$&'()*+,=:@/]|%[0-9A-Fa-f]{2})*$/;
/** Octets that mean one thing encoded and another decoded, or that need no encoding: `%2f`, `%5c`, `%25`, `%3b`, controls, `%61`. */
const ambiguousOctet = /%(?:[01][0-9a-f]|7f|2f|5c|25|3b|2[de]|3[0-9]|4[1-9a-f]|5[0-9af]|6[1-9a-f]|7[0-9ae])/i;
const ambiguousSegment = /\/(?:\/|\.{1,2}(?:\/|$))/;

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
