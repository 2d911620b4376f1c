import type { ListContent } from './source-content.js';

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
