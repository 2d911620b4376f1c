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
