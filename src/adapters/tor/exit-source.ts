import { createHash } from 'node:crypto';
import { redact } from '../../config/redact.js';

/** A source of Tor exit lists. */
export interface ExitSource {
  /** The same for the same source in every process. A hash, because a URL may contain a secret. */
  readonly id: string;
  /** For display, without the possible secrets of a URL. */
  readonly name: string;
  /** A URL, which one gateway fetches for all; or a file, which each gateway reads itself. */
  readonly location: { readonly url: URL } | { readonly file: string };
}

const httpUrl = /^https?:\/\//i;

/**
 * Parses an entry of `torExits.sources`.
 * @param allowReserved whether the stored list keeps reserved addresses. The id depends on it, because lists with and
 * without these addresses differ.
 */
export function exitSourceOf(entry: string, allowReserved: boolean): ExitSource {
  const id = createHash('sha256')
    .update(JSON.stringify([entry, allowReserved]))
    .digest('hex')
    .slice(0, 32);
  return { id, name: redact(entry), location: httpUrl.test(entry) ? { url: new URL(entry) } : { file: entry } };
}

/** Validators by which a server reports whether a list has changed since it was fetched. */
export interface Validators {
  readonly etag: string | null;
  readonly lastModified: string | null;
}

/** A list as read from its source. */
interface ListContent extends Validators {
  readonly text: string;
  /** When its file was last written (ISO 8601, UTC); null for a URL. */
  readonly writtenAt: string | null;
}

/** A list, or `unchanged` when the validators still match. */
export type SourceContent = ListContent | 'unchanged';

/** The longest accepted list, in bytes: more than the whole Tor network takes in any of the formats. */
export const maxListBytes = 16 * 1024 * 1024;

/**
 * The date of a list, and where it comes from: the list itself, its server (`Last-Modified`), or the time of its file.
 */
export interface ListDate {
  /** ISO 8601, UTC; null when unknown. */
  readonly datedAt: string | null;
  readonly datedBy: 'list' | 'server' | 'file' | null;
}

/** The times by which a list ages: its last confirmation and its own date. */
interface Dated extends Partial<ListDate> {
  readonly confirmedAt: string;
}

/** Dates in the exit-addresses format. */
const dateInBlock =
  /^(?:Published|LastStatus|ExitAddress \S+) (?<day>\d{4}-\d{2}-\d{2}) (?<time>\d{2}:\d{2}:\d{2})\r?$/gm;
/** The date at the head of Onionoo's details. */
const datePublished = /"relays_published" ?: ?"(?<day>\d{4}-\d{2}-\d{2}) (?<time>\d{2}:\d{2}:\d{2})"/;

/** The newest date in a list; without one, the date of its server or its file. */
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
 * Since when a list ages, in milliseconds since 1970: its own date, unless that is later than the last confirmation.
 */
export function ageStart({ confirmedAt, datedAt }: Dated): number {
  return Math.min(Date.parse(confirmedAt), Date.parse(datedAt ?? confirmedAt));
}

/**
 * The same for `torExits.maxAgeHours`, after which a list is unavailable. The time of a file does not count: any copy
 * changes it, and a gateway must not become unavailable because of a copy. Operators see the age in a warning.
 */
export function expiryStart(list: Dated): number {
  return list.datedBy === 'file' ? Date.parse(list.confirmedAt) : ageStart(list);
}

/**
 * Why a list was rejected, so that its source keeps the previous one. The names are metric labels and are never
 * renamed.
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

/** A Tor exit list that cannot be fetched or must not be used. The message follows "because" and quotes no content. */
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
