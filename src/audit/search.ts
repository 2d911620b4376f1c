import { type IpRange, parseIpRange } from '../policy/ip-ranges.js';
import { addressOf, requestsIn } from './access-entry.js';
import type { CountedEntry } from './access-entry.js';

/** A search filter. A log line matches if it matches every given member. */
export interface Search {
  readonly merchant?: string | undefined;
  readonly keyId?: string | undefined;
  readonly fingerprint?: string | undefined;
  readonly code?: string | undefined;
  /**
   * Matches if the address of the client or of the connection's peer is in this range. Requests of one IPv6 /64 can
   * share a line that contains only the /64, not their addresses. Such a line matches if the /64 overlaps the range.
   */
  readonly address?: IpRange | undefined;
  /** Matches this URL path and every path below it. */
  readonly path?: string | undefined;
  /** Milliseconds since 1970, inclusive. */
  readonly since?: number | undefined;
  /** Milliseconds since 1970, exclusive. */
  readonly until?: number | undefined;
  readonly requestId?: string | undefined;
}

/** Matches values that JSON does not escape. The bytes of a line contain such a value unchanged. */
const unescaped = /^[\w.:-]+$/;

/**
 * Returns a fast test of the bytes of a line. A line that fails the test does not match the search, and need not be
 * parsed. Parsing every line as JSON would take ten times as long.
 */
export function mayMatch({ merchant, keyId, fingerprint, code, requestId }: Search): (line: Buffer) => boolean {
  const texts = [requestId, keyId, fingerprint, merchant, code].filter((text) => text !== undefined);
  const needles = texts.filter((text) => unescaped.test(text)).map((text) => Buffer.from(text));
  return (line) => needles.every((needle) => line.includes(needle));
}

/** Whether a line about a request matches the search. */
export function matches(entry: CountedEntry, search: Search): boolean {
  const { merchant, keyId, fingerprint, code, address, path, since, until, requestId } = search;
  const time = Date.parse(entry['@timestamp']);
  return (
    (merchant === undefined || entry.organization?.id === merchant) &&
    (keyId === undefined || entry.gateway.key?.id === keyId) &&
    (fingerprint === undefined || entry.gateway.key?.fingerprint === fingerprint) &&
    (code === undefined || requestsIn(entry, code).length > 0) &&
    (requestId === undefined || entry.http.request.id === requestId) &&
    (path === undefined || isBelow(entry.url?.path ?? '', path)) &&
    (since === undefined || time >= since) &&
    (until === undefined || time < until) &&
    (address === undefined || comesFrom(entry, address))
  );
}

function isBelow(path: string, prefix: string): boolean {
  return path === prefix || path.startsWith(prefix.endsWith('/') ? prefix : `${prefix}/`);
}

function comesFrom(entry: CountedEntry, range: IpRange): boolean {
  return [addressOf(entry), entry.source?.ip].some((text) => {
    const from = parseIpRange(text ?? '');
    return from?.family === range.family && from.first <= range.last && range.first <= from.last;
  });
}
