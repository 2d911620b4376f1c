import { type Command, InvalidArgumentError, Option } from 'commander';
import { keyPrefixes } from '../../policy/key-format.js';
import { identifierForm } from '../../registry/fields.js';
import type { Static } from '../../typebox/typebox.js';
import type { pageSchema } from './admin-answer.js';
import { WrongUsage } from './peer.js';

/** The options of a list that has pages. */
export interface PageOptions {
  readonly page?: string;
  readonly perPage?: string;
}

const spanForm = /^[1-9][0-9]{0,8}[smhd]$/;
const seconds: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Collects an option that may be given several times. */
export function collect(value: string, earlier: readonly string[] = []): readonly string[] {
  return [...earlier, value];
}

/** Reads a span of time such as 90d, as the API writes it. */
export function spanIn(value: string): string {
  if (spanForm.test(value)) return value;
  throw new InvalidArgumentError('Expected a number of seconds, minutes, hours or days, such as 30m, 12h or 90d.');
}

/** Reads a span of time as a number of seconds. */
export function secondsIn(value: string): number {
  const span = spanIn(value);
  return Number(span.slice(0, -1)) * (seconds[span.slice(-1)] ?? NaN);
}

const keyInPlaceOfId =
  'that is a key, not an id, and others on this machine may have seen it: a key is never an argument. See keys list';

function isKey(text: string): boolean {
  return Object.values(keyPrefixes).some((prefix) => text.startsWith(prefix));
}

/**
 * An id as it was given. A key in its place is not repeated: error messages are kept and passed on.
 * @throws WrongUsage
 */
export function idIn(text: string | undefined, what: 'merchant' | 'key'): string {
  if (text !== undefined && isKey(text)) throw new WrongUsage(keyInPlaceOfId);
  if (text !== undefined && identifierForm.test(text)) return text;
  throw new WrongUsage(`the id of a ${what} has 1 to 64 letters, digits, - and _: see ${what}s list`);
}

/** Reads what may stand in a log for an id, which is whatever somebody has written there, but no key. */
export function loggedIdIn(value: string): string {
  if (isKey(value)) throw new InvalidArgumentError(keyInPlaceOfId);
  return value;
}

/** `--key`, the former name of `--key-id`: it goes on working, and is told of nowhere. */
export function formerKeyOption(): Option {
  return new Option('--key <keyid>').conflicts('keyId').hideHelp();
}

/** Adds the options of a list that has pages. */
export function pageOptions(command: Command): Command {
  return command
    .option('--page <number>', 'which page, counted from 1')
    .option('--per-page <number>', 'how many on a page: 1 to 100, or else 20');
}

/** The query for a page. */
export function pageQuery({ page, perPage }: PageOptions): Record<'page' | 'per_page', string | undefined> {
  return { page, per_page: perPage };
}

/** Says which part of a list was shown. */
export function pageLine(shown: number, what: string, page: Static<typeof pageSchema> | null): string {
  if (page === null || page.total_records === 0) return `No ${what}s.`;
  const { total_records: all, current_page: current, total_pages: pages } = page;
  const of = `${all} ${what}${all === 1 ? '' : 's'}`;
  return shown === all ? `${of}.` : `${shown} of ${of}: page ${current} of ${pages} (--page, --per-page).`;
}
