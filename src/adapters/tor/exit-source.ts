import { createHash } from 'node:crypto';
import { redact } from '../../config/redact.js';

/** A source of Tor exit lists: a URL or a file. */
export interface ExitSource {
  /** A hash of the source, equal in every process. The URL itself is not used, because it could contain a secret. */
  readonly id: string;
  /** The URL or path for display, without possible secrets. */
  readonly name: string;
  /** A URL, which one gateway fetches for all gateways, or a file, which each gateway reads itself. */
  readonly location: { readonly url: URL } | { readonly file: string };
}

const httpUrl = /^https?:\/\//i;

/**
 * Parses an entry of `torExits.sources`. The id of the source depends on `allowReserved`, because this option changes
 * which addresses the stored list contains.
 * @param allowReserved whether lists are allowed to contain reserved addresses
 */
export function exitSourceOf(entry: string, allowReserved: boolean): ExitSource {
  const id = createHash('sha256')
    .update(JSON.stringify([entry, allowReserved]))
    .digest('hex')
    .slice(0, 32);
  return { id, name: redact(entry), location: httpUrl.test(entry) ? { url: new URL(entry) } : { file: entry } };
}

/** HTTP validators (`ETag`, `Last-Modified`), which let a server report that a list is unchanged. */
export interface Validators {
  readonly etag: string | null;
  readonly lastModified: string | null;
}

/** A list as read from its source. */
interface ListContent extends Validators {
  readonly text: string;
  /** When the file was last written (ISO 8601, UTC); null for a URL. */
  readonly writtenAt: string | null;
}

/** A list, or `unchanged` if the validators still match. */
export type SourceContent = ListContent | 'unchanged';

/** Maximum size of a list in bytes. It exceeds the size of a list of the whole Tor network in any format. */
export const maxListBytes = 16 * 1024 * 1024;

/**
 * The date of a list, and where that date was found: in the list itself, in the `Last-Modified` header of the response,
 * or in the modification time of the file.
 */
export interface ListDate {
  /** The date (ISO 8601, UTC); null if unknown. */
  readonly datedAt: string | null;
  readonly datedBy: 'list' | 'server' | 'file' | null;
}

/**
 * The two times that determine the age of a list: its date, and `confirmedAt`, when the source last returned the list
 * or reported it as unchanged.
 */
interface Dated extends Partial<ListDate> {
  readonly confirmedAt: string;
}

/** Matches the dates in a list in the exit-addresses format. */
const dateInBlock =
  /^(?:Published|LastStatus|ExitAddress \S+) (?<day>\d{4}-\d{2}-\d{2}) (?<time>\d{2}:\d{2}:\d{2})\r?$/gm;
/** Matches the date in the header of a Tor Onionoo details document. */
const datePublished = /"relays_published" ?: ?"(?<day>\d{4}-\d{2}-\d{2}) (?<time>\d{2}:\d{2}:\d{2})"/;

/**
 * Returns the newest date in a list. If the list contains no date, returns the date from its server or its file, if
 * known.
 */
export function dateOf({ text, lastModified, writtenAt }: ListContent): ListDate {
  const ownDate = newestIn(text);
  if (ownDate !== null) return { datedAt: ownDate, datedBy: 'list' };
  const served = Date.parse(lastModified ?? '');
  if (!Number.isNaN(served)) return { datedAt: new Date(served).toISOString(), datedBy: 'server' };
  return { datedAt: writtenAt, datedBy: writtenAt === null ? null : 'file' };
}

function newestIn(text: string): string | null {
  const isOnionoo = text.trimStart().startsWith('{');
  if (!isOnionoo && !text.includes('ExitAddress ')) return null;
  let newest: string | null = null;
  for (const { groups } of isOnionoo
    ? [datePublished.exec(text)].filter((one) => one !== null)
    : text.matchAll(dateInBlock)) {
    const moment = `${groups?.day ?? ''}T${groups?.time ?? ''}.000Z`;
    if (moment > (newest ?? '') && !Number.isNaN(Date.parse(moment))) newest = moment;
  }
  return newest;
}

/**
 * Returns the time from which the age of a list counts, in milliseconds since 1970: the list's own date or its last
 * confirmation, whichever is earlier.
 */
export function ageStart({ confirmedAt, datedAt }: Dated): number {
  return Math.min(Date.parse(confirmedAt), Date.parse(datedAt ?? confirmedAt));
}

/**
 * Returns the time from which `torExits.maxAgeHours` counts, in milliseconds since 1970. Ignores the modification time
 * of a file, because a copied file can have any modification time. An old time would let the list expire, which could
 * make the gateway unavailable. Operators get a warning about the age of the file instead.
 */
export function expiryStart(list: Dated): number {
  return list.datedBy === 'file' ? Date.parse(list.confirmedAt) : ageStart(list);
}

/**
 * Why a list was rejected. The previous list of the source then stays in use. The values are metric labels, so they
 * must never be renamed.
 */
type RefusalReason =
  | 'unreadable'
  | 'unreachable'
  | 'bad_answer'
  | 'too_large'
  | 'cut_off'
  | 'html'
  | 'malformed'
  | 'empty'
  | 'shrunken'
  | 'names_trusted_proxy';

/**
 * Thrown for a Tor exit list that cannot be fetched or must not be used. The message completes a sentence after
 * "because". It quotes nothing from the list, except the address of a trusted proxy.
 */
export class ExitListRejected extends Error {
  constructor(
    readonly reason: RefusalReason,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'ExitListRejected';
  }
}
