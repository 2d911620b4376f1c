import { createHash } from 'node:crypto';
import { redact } from '../../config/redact.js';

/** Where a list of Tor exits comes from. */
export interface ExitSource {
  /** The same for the same source in every process, and tells nothing of it: a URL may hold a secret. */
  readonly id: string;
  /** For people: without what could be secret in a URL. */
  readonly name: string;
  /** A URL that is fetched, by one gateway for all; or a file, which each gateway reads itself. */
  readonly location: { readonly url: URL } | { readonly file: string };
}

const httpUrl = /^https?:\/\//i;

/**
 * Reads an entry of `torExits.sources`.
 * @param allowReserved part of the id, because a list is kept without what that option leaves out
 */
export function exitSourceOf(entry: string, allowReserved: boolean): ExitSource {
  const id = createHash('sha256')
    .update(JSON.stringify([entry, allowReserved]))
    .digest('hex')
    .slice(0, 32);
  return { id, name: redact(entry), location: httpUrl.test(entry) ? { url: new URL(entry) } : { file: entry } };
}

/** By what a server tells whether a list has changed since it was fetched. */
export interface Validators {
  readonly etag: string | null;
  readonly lastModified: string | null;
}

/** A list as its source has it. */
interface ListContent extends Validators {
  readonly text: string;
  /** When its file was last written (ISO 8601, UTC); null: it is no file. */
  readonly writtenAt: string | null;
}

/** What a source holds: a list, or no other list than the one that the validators are of. */
export type SourceContent = ListContent | 'unchanged';

/** The longest list, in bytes: more than the whole Tor network takes in any of the formats. */
export const maxListBytes = 16 * 1024 * 1024;

/** The list's own date, and who tells it: the list itself, its server (`Last-Modified`), or the time of its file. */
export interface ListDate {
  /** ISO 8601, UTC; null: nobody tells. */
  readonly datedAt: string | null;
  readonly datedBy: 'list' | 'server' | 'file' | null;
}

/** What ages a list: when it was last confirmed, and its own date. */
interface Dated extends Partial<ListDate> {
  readonly confirmedAt: string;
}

/** The dates of the exit-addresses format. */
const dateInBlock =
  /^(?:Published|LastStatus|ExitAddress \S+) (?<day>\d{4}-\d{2}-\d{2}) (?<time>\d{2}:\d{2}:\d{2})\r?$/gm;
/** The date at the head of Onionoo's details. */
const datePublished = /"relays_published" ?: ?"(?<day>\d{4}-\d{2}-\d{2}) (?<time>\d{2}:\d{2}:\d{2})"/;

/** The newest date in a list; else what its server or its file tells. */
export function dateOf({ text, lastModified, writtenAt }: ListContent): ListDate {
  const told = newestIn(text);
  if (told !== null) return { datedAt: told, datedBy: 'list' };
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

/** Since when a list ages, in milliseconds since 1970: its own date, unless that lies ahead of the last confirmation. */
export function agesSince({ confirmedAt, datedAt }: Dated): number {
  return Math.min(Date.parse(confirmedAt), Date.parse(datedAt ?? confirmedAt));
}

/**
 * The same for `torExits.maxAgeHours`, beyond which no list is in force. The time of a file does not count there: any copy
 * changes it, and a gateway must not stop for that. Operators are told by the age.
 */
export function expiresSince(list: Dated): number {
  return list.datedBy === 'file' ? Date.parse(list.confirmedAt) : agesSince(list);
}

/** Why a source's list did not take the place of the one before. The names stand in metrics and are never renamed. */
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

/** A list of Tor exits that cannot be had or must not be used. The message goes after "because", and quotes no content. */
export class ExitListRefused extends Error {
  constructor(
    readonly reason: RefusalReason,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'ExitListRefused';
  }
}
