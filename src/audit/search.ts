import { parseIpAddress } from '../policy/ip-address.js';
import type { IpRanges } from '../policy/ip-ranges.js';
import { addressOf, requestsIn } from './access-entry.js';
import type { AccessEntry } from './access-entry.js';

/** What is looked for; every part that is given must match. */
export interface Search {
  readonly merchant?: string | undefined;
  readonly keyId?: string | undefined;
  readonly fingerprint?: string | undefined;
  readonly code?: string | undefined;
  /** Of the client, or of the peer. */
  readonly address?: IpRanges | undefined;
  /** A path, and everything below it. */
  readonly path?: string | undefined;
  /** Milliseconds since 1970: from this moment on. */
  readonly since?: number | undefined;
  /** Up to but without this one. */
  readonly until?: number | undefined;
  readonly requestId?: string | undefined;
}

/** What stands in a line as it is. */
const unescaped = /^[\w.:-]+$/;

/**
 * A test of the bytes of a line: where it fails, the line is not what is looked for. To read each line as JSON takes ten times as long, and
 * few lines have an id.
 */
export function mayMatch({ merchant, keyId, fingerprint, code, requestId }: Search): (line: Buffer) => boolean {
  const texts = [requestId, keyId, fingerprint, merchant, code].filter((text) => text !== undefined);
  const needles = texts.filter((text) => unescaped.test(text)).map((text) => Buffer.from(text));
  return (line) => needles.every((needle) => line.includes(needle));
}

/** Says whether the line of a request is what is looked for. */
export function matches(entry: AccessEntry, search: Search): boolean {
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

function comesFrom(entry: AccessEntry, ranges: IpRanges): boolean {
  return [addressOf(entry), entry.source?.ip].some((text) => {
    const address = parseIpAddress(text ?? '');
    return address !== null && ranges.contains(address);
  });
}
