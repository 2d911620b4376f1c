import { writeFile } from 'node:fs/promises';
import { Command } from 'commander';
import { findEntry, leftOutText } from '../../audit/access-entry.js';
import { readLogLines } from '../../audit/log-lines.js';
import { matches } from '../../audit/search.js';
import { type CountedList, incompleteText, Summing } from '../../audit/summary.js';
import type { Summary } from '../../audit/summary.js';
import { summaryHtml } from '../../audit/summary-html.js';
import type { Count } from '../../audit/tally.js';
import { OperatorError } from '../../config/operator-error.js';
import { fileProblemOf } from '../../config/operator-file.js';
import { printableJson } from '../admin/printable.js';
import { tableLines } from '../admin/table.js';
import type { CommandIo } from '../command-io.js';
import { logFilesOf, searchIn, searchOptions, type SearchOptions } from './log-options.js';

interface Options extends SearchOptions {
  readonly config?: string;
  readonly html?: string;
  readonly json?: true;
}

/** `audit summary`. */
export function summaryCommand(io: CommandIo): Command {
  const command = new Command('summary')
    .description('count the requests of a log: refusals, merchants, addresses, countries, keys at risk')
    .argument('[file...]', 'in the order of their lines; .gz is unpacked, - is standard input');
  return searchOptions(command)
    .option('--html <file>', 'write one page with charts, which needs nothing else')
    .option('--json', 'print JSON')
    .addHelpText('after', '\nIt does not verify the log: audit verify does.')
    .action((files: string[], options: Options) => {
      const chosen = { ...options, ...searchIn(command, options) };
      return summarise(logFilesOf(command, files, options.config), chosen, io);
    });
}

async function summarise(files: readonly string[], options: Options, { out, err }: CommandIo): Promise<void> {
  const summing = new Summing();
  for await (const lines of readLogLines(files)) {
    for (const { bytes } of lines) {
      const read = findEntry(bytes);
      if (read === null) summing.add(null);
      else if (matches(read.entry, options)) {
        if (read.isSealed) summing.add(read.entry, options.code);
        else summing.leaveOut();
      }
    }
  }
  const summary = summing.end();
  if (options.html !== undefined) await writePage(options.html, summary);
  out(options.json === true ? `${printableJson(summary)}\n` : asText(summary));
  err(leftOutText(summary.leftOutLines) + incompleteText(summary));
}

async function writePage(file: string, summary: Summary): Promise<void> {
  try {
    await writeFile(file, summaryHtml(summary, 'merchant-gateway: access log'), { mode: 0o640 });
  } catch (error) {
    const isNowhere = (error as NodeJS.ErrnoException).code === 'ENOENT';
    const reason = isNowhere ? 'there is no such directory' : fileProblemOf(error);
    throw new OperatorError(`${file} cannot be written: ${reason}.`, { cause: error });
  }
}

function asText(summary: Summary): string {
  const { requests, accepted, from, to, newAddresses, newAddressCount } = summary;
  const table = (heading: string, list: CountedList): string[] => {
    const counts: readonly Count[] = summary[list];
    const more = summary.distinct[list] - counts.length;
    if (counts.length === 0) return [];
    const rows = counts.map(({ value, count }) => [value, String(count)]);
    return ['', ...tableLines([heading, 'REQUESTS'], rows), ...(more > 0 ? [`and ${more} more`] : [])];
  };
  if (requests === 0) return 'No request matches.\n';
  const lines = [
    `${requests} requests from ${from ?? '-'} to ${to ?? '-'}: ${accepted} accepted, ${requests - accepted} not.`,
    ...table('NOT ACCEPTED BECAUSE', 'codes'),
    ...table('MERCHANT, ACCEPTED', 'merchants'),
    ...table('MERCHANT, NOT ACCEPTED', 'refusedMerchants'),
    ...table('ADDRESS', 'addresses'),
    ...table('ADDRESS, NOT ACCEPTED', 'refusedAddresses'),
    ...table('COUNTRY', 'countries'),
    ...table('KEY OVER PLAIN HTTP OR THROUGH TOR', 'exposedKeys'),
    ...(newAddressCount === 0
      ? []
      : [
          '',
          ...tableLines(
            ['KEYID, FROM A NEW ADDRESS', 'MERCHANT', 'ADDRESS', 'AT', 'CODE'],
            newAddresses.map(({ keyId, merchant, address, at, code }) => [keyId, merchant ?? '-', address, at, code]),
          ),
          ...(newAddressCount > newAddresses.length ? [`and ${newAddressCount - newAddresses.length} before`] : []),
        ]),
  ];
  return `${lines.join('\n')}\n`;
}
