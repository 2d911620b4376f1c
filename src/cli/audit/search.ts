import { Command, InvalidArgumentError } from 'commander';
import { addressOf, findEntry, ignoredLinesWarning } from '../../audit/access-entry.js';
import type { AccessEntry } from '../../audit/access-entry.js';
import { counted } from '../../audit/finding.js';
import { readLogLines } from '../../audit/log-lines.js';
import { matches, mayMatch } from '../../audit/search.js';
import { printable } from '../admin/printable.js';
import { terminalWidth, widthOf } from '../admin/table.js';
import type { CommandIo } from '../command-io.js';
import { logFilesOf, searchIn, searchOptions, type SearchOptions } from './log-options.js';

interface Options extends SearchOptions {
  readonly config?: string;
  readonly limit: number;
  readonly json?: true;
}

const defaultLimit = 1_000;
const maxLimit = 100_000;

/** Creates the command `audit search`. */
export function searchCommand(io: CommandIo): Command {
  const command = new Command('search')
    .description('print the lines of a log that match all given filters')
    .argument(
      '[file...]',
      'files of the log in order, oldest first; .gz files are decompressed, "-" means standard input',
    );
  return searchOptions(command)
    .option('--limit <count>', `maximum number of printed lines, up to ${maxLimit}`, limitIn, defaultLimit)
    .option('--json', 'print the lines unchanged, as JSON')
    .addHelpText('after', '\nThis command does not verify the log. To verify it, use "merchant-gateway audit verify".')
    .action((files: string[], options: Options) => {
      const chosen = { ...options, ...searchIn(command, options) };
      return search(logFilesOf(command, files, options.config), chosen, io);
    });
}

async function search(files: readonly string[], options: Options, { out, err }: CommandIo): Promise<void> {
  let [found, leftOut] = [0, 0];
  const mayBeIt = mayMatch(options);
  for await (const lines of readLogLines(files)) {
    for (const { bytes } of lines) {
      if (bytes === null || !mayBeIt(bytes)) continue;
      const read = findEntry(bytes);
      if (read === null || !matches(read.entry, options)) continue;
      if (!read.isSealed) {
        leftOut += 1; // not in the hash chain: anyone who can write to the file can insert such a line
        continue;
      }
      if (found === options.limit) {
        err(`More than ${options.limit} lines match: raise --limit, or add filters.\n${ignoredLinesWarning(leftOut)}`);
        return;
      }
      found += 1;
      // Escape terminal control characters: the gateway writes none to the log, but a line that an attacker inserted
      // could contain some.
      out(`${options.json === true ? printable(read.line) : rowOf(read.entry, terminalWidth())}\n`);
    }
  }
  if (found === 0) err('No line matches.\n');
  err(ignoredLinesWarning(leftOut));
}

/**
 * Formats a line of the log as one row, or as several on a narrow terminal. Breaks only between cells, so that ids can
 * be copied.
 */
function rowOf(entry: AccessEntry, width: number): string {
  const { event, http, url, organization, gateway } = entry;
  const cells = [
    entry['@timestamp'],
    String(http.response.status_code),
    event.code.padEnd(18),
    (addressOf(entry) ?? '-').padEnd(15),
    organization?.id ?? '-',
    gateway.key?.id ?? gateway.key?.fingerprint ?? '-',
    http.request.id ?? '-',
    gateway.aggregate === undefined
      ? `${http.request.method ?? '-'} ${url?.path ?? '-'}`
      : counted(gateway.aggregate.count, 'request'),
    ...(event.reason === undefined ? [] : [event.reason]),
  ];
  return cells
    .map(printable)
    .reduce<string[]>((lines, cell) => {
      const last = lines.at(-1);
      const longer = `${last ?? ''}  ${cell}`;
      if (last === undefined) return [cell];
      return widthOf(longer.trimEnd()) <= width ? [...lines.slice(0, -1), longer] : [...lines, `    ${cell}`];
    }, [])
    .join('\n');
}

function limitIn(value: string): number {
  const limit = /^\d{1,6}$/.test(value) ? Number(value) : 0;
  if (limit >= 1 && limit <= maxLimit) return limit;
  throw new InvalidArgumentError(`Expected a whole number from 1 to ${maxLimit}.`);
}
