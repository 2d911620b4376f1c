import { type Command, InvalidArgumentError, Option } from 'commander';
import { keyPrefixes } from '../../policy/key-format.js';
import { tokenPrefix } from '../../registry/administrators/token-text.js';
import { identifierForm } from '../../registry/fields.js';
import type { Static } from '../../typebox/typebox.js';
import type { pageSchema } from './admin-response.js';
import { WrongUsage } from './peer.js';

/** The options of a paginated list. */
export interface PageOptions {
  readonly page?: string;
  readonly perPage?: string;
}

const spanForm = /^[1-9][0-9]{0,8}[smhd]$/;
const seconds: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Appends a value of a repeatable command-line option to the earlier values of this option. */
export function collect(value: string, earlier: readonly string[] = []): readonly string[] {
  return [...earlier, value];
}

/** Validates a time span such as 90d. Returns the span unchanged, because the API uses the same notation. */
export function spanIn(value: string): string {
  if (spanForm.test(value)) return value;
  throw new InvalidArgumentError('Expected a number of seconds, minutes, hours or days, such as 30m, 12h or 90d.');
}

/** Parses a time span such as 90d into seconds. */
export function secondsIn(value: string): number {
  const span = spanIn(value);
  return Number(span.slice(0, -1)) * (seconds[span.slice(-1)] ?? NaN);
}

const keyInPlaceOfId =
  'this is an API key or a token, not an id. Never pass a key or token as an argument: other users of this machine ' +
  'can see it. For the ids of keys, see "merchant-gateway keys list"';

function isKey(text: string): boolean {
  return [...Object.values(keyPrefixes), tokenPrefix].some((prefix) => text.startsWith(prefix));
}

/**
 * Validates an id. Error messages end up in logs, so the error never repeats the text: it could be an API key.
 * @throws WrongUsage
 */
export function idIn(text: string | undefined, what: 'merchant' | 'key' | 'approval' | 'finding'): string {
  if (text !== undefined && isKey(text)) throw new WrongUsage(keyInPlaceOfId);
  if (text !== undefined && identifierForm.test(text)) return text;
  throw new WrongUsage(
    `the id of ${what === 'approval' ? 'an' : 'a'} ${what} must consist of 1 to 64 letters, digits, hyphens or underscores. ` +
      `To see the ids, run "merchant-gateway ${what === 'finding' ? 'unusual' : `${what}s`} list"`,
  );
}

/**
 * Accepts any text as a value to search for, except an API key or an administrator's token: other users of the machine
 * can see arguments.
 * @throws InvalidArgumentError
 */
export function loggedIdIn(value: string): string {
  if (isKey(value)) throw new InvalidArgumentError(keyInPlaceOfId);
  return value;
}

/** Creates the option `--key`, a deprecated alias of `--key-id` that help texts omit. */
export function formerKeyOption(): Option {
  return new Option('--key <keyid>').conflicts('keyId').hideHelp();
}

/** Adds the options for the page of a paginated list. */
export function pageOptions(command: Command): Command {
  return command
    .option('--page <number>', 'page number, from 1 (default: 1)')
    .option('--per-page <number>', 'entries per page, 1 to 100 (default: 20)');
}

/** Builds the query for the page of a list. */
export function pageQuery({ page, perPage }: PageOptions): Record<'page' | 'per_page', string | undefined> {
  return { page, per_page: perPage };
}

/** Builds the last line of a list: the number of entries shown, the number of all entries, and the page number. */
export function pageLine(shown: number, what: string, page: Static<typeof pageSchema> | null): string {
  if (page === null || page.total_records === 0) return `No ${what}s.`;
  const { total_records: all, current_page: current, total_pages: pages } = page;
  const of = `${all} ${what}${all === 1 ? '' : 's'}`;
  return shown === all
    ? `${of}.`
    : `${shown} of ${of}: page ${current} of ${pages}. To show other pages, use --page and --per-page.`;
}
