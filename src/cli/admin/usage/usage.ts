import { Command, Option } from 'commander';
import { csvText } from '../../../registry/usage/list-response.js';
import { addressRowSchema, lastUseSchema, type UsageRow, usageRowSchema } from '../../../registry/usage/schema.js';
import Type, { type Static, type TSchema } from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { administer } from '../admin-call.js';
import type { AdminClient } from '../admin-client.js';
import { idIn, secondsIn } from '../arguments.js';
import { type Environment, WrongUsage } from '../peer.js';
import { printable } from '../printable.js';
import { recordLines, tableLines, terminalWidth } from '../table.js';
import { chartLines } from './chart.js';

/** The options of `usage`. */
interface UsageOptions {
  readonly merchant?: string;
  readonly key?: string;
  readonly unknown?: true;
  readonly since: number;
  readonly by?: 'hour' | 'day';
  readonly csv?: true;
}

/** Number of characters of a date such as 2026-01-31. */
const dateLength = 10;
const perPage = 100;
/**
 * Maximum number of pages that a command reads. These pages have as many rows in total as the longest CSV response of
 * the registry.
 */
const mostPages = 100;

/** Creates the command `usage`, which shows the requests that the gateways have counted. */
export function usageCommand(io: CommandIo, env: Environment = process.env): Command {
  const usage = new Command('usage').description('show how many requests the gateways accepted and refused');
  usage
    .option('--merchant <id>', 'requests of this merchant')
    .option('--key <keyid>', 'requests with this key, and the last use of the key')
    .option('--unknown', 'requests without a known key, by address')
    .option('--since <span>', 'period up to now, e.g. 12h or 30d (default: 7d)', secondsIn, 7 * 86_400)
    .addOption(
      new Option(
        '--by <unit>',
        'unit of time in the chart (default: hour for a period of up to two days, otherwise day)',
      ).choices(['hour', 'day']),
    )
    .addOption(new Option('--csv', 'print the request counts as CSV instead of a chart or table').conflicts('json'));
  administer<UsageOptions>(usage, { io, env }, async ({ client, options, show }) => {
    const now = Date.now();
    const since = new Date(now - options.since * 1_000).toISOString();
    if ([options.merchant, options.key, options.unknown].filter((one) => one !== undefined).length !== 1)
      throw new WrongUsage('give exactly one of --merchant, --key and --unknown');
    if (options.unknown === true) {
      const rows = await everyPage(client, ['usage', 'unknown'], { since }, addressRowSchema);
      if (options.csv === true) io.out(printedCsv(Object.keys(addressRowSchema.properties), rows));
      else show(rows, addressLines(rows));
      return;
    }
    const owner =
      options.key === undefined
        ? ['merchants', idIn(options.merchant, 'merchant')]
        : ['keys', idIn(options.key, 'key')];
    const by = options.by ?? (options.since <= 2 * 86_400 ? 'hour' : 'day');
    const path = [...owner, 'usage'];
    const rows = await everyPage(client, path, { since, by }, usageRowSchema);
    if (options.csv === true) {
      io.out(printedCsv(Object.keys(usageRowSchema.properties), rows));
      return;
    }
    const codes = await everyPage(client, path, { since, by: 'code' }, usageRowSchema);
    const lastUse =
      options.key === undefined
        ? null
        : (await client.ask({ method: 'GET', path: [...owner, 'last-use'], expects: lastUseSchema })).data.lastUse;
    const lines =
      rows.length === 0
        ? [`No requests since ${since}.`]
        : [...chartLines(rows, { by, since, now, width: terminalWidth() }), '', ...codeLines(codes)];
    const last = options.key === undefined ? [] : ['', ...recordLines([['last use', lastUseText(lastUse)]])];
    show(options.key === undefined ? rows : { lastUse, rows }, [...lines, ...last]);
  });
  return usage;
}

/** Reads all pages of a list. @throws WrongUsage if the list has more than `mostPages` pages */
export async function everyPage<Item extends TSchema>(
  client: AdminClient,
  path: readonly string[],
  query: Readonly<Record<string, string | undefined>>,
  item: Item,
): Promise<Static<Item>[]> {
  const all: Static<Item>[] = [];
  for (let number = 1; number <= mostPages; number += 1) {
    const asked = { ...query, page: String(number), per_page: String(perPage) };
    const { data, page } = await client.ask({ method: 'GET', path, query: asked, expects: Type.Array(item) });
    all.push(...data);
    if (page === null || number >= page.total_pages) return all;
  }
  throw new WrongUsage(
    `the registry has more than ${mostPages * perPage} request counts for this period: give a shorter period with --since`,
  );
}

/** Formats rows as CSV, with terminal control characters escaped. */
function printedCsv(columns: readonly string[], rows: readonly object[]): string {
  return csvText(columns, rows).split('\r\n').map(printable).join('\r\n');
}

function codeLines(rows: readonly UsageRow[]): string[] {
  const total = rows.reduce((sum, { requests }) => sum + requests, 0);
  return tableLines(
    ['CODE', 'REQUESTS', 'SHARE', 'AVERAGE MS', 'SLOWEST MS'],
    rows.map(({ code, requests, averageMilliseconds, slowestMilliseconds }) => [
      ...[code ?? '', String(requests), `${((requests / total) * 100).toFixed(1)} %`],
      ...[String(averageMilliseconds), String(slowestMilliseconds)],
    ]),
  );
}

function lastUseText(lastUse: Static<typeof lastUseSchema>['lastUse']): string {
  if (lastUse === null) return 'no accepted request was counted';
  return `${lastUse.at} from ${lastUse.address}${lastUse.country === null ? '' : ` (${lastUse.country})`}`;
}

/** Formats the numbers of requests by day and address as a table. */
export function addressLines(rows: readonly Static<typeof addressRowSchema>[]): string[] {
  if (rows.length === 0) return ['No requests.'];
  return tableLines(
    ['DAY', 'ADDRESS', 'COUNTRY', 'AS', 'ACCEPTED', 'REFUSED', 'LAST'],
    rows.map(({ day, address, country, asNumber, accepted, refused, lastAt }) => [
      ...[day.slice(0, dateLength), address ?? 'all others', country ?? ''],
      ...[asNumber === null ? '' : String(asNumber), String(accepted), String(refused), lastAt],
    ]),
  );
}
