import { writeFile } from 'node:fs/promises';
import { Command } from 'commander';
import { ignoredLinesWarning } from '../../audit/access-entry.js';
import { readLogLines } from '../../audit/log-lines.js';
import { type Verdict, verdictText } from '../../audit/chain-check.js';
import { counted } from '../../audit/finding.js';
import { findCounted } from '../../audit/plain-line.js';
import { matches } from '../../audit/search.js';
import { type CountedList, incompleteText, SummaryBuilder } from '../../audit/summary/summary.js';
import type { Summary } from '../../audit/summary/summary.js';
import { summaryHtml } from '../../audit/summary/summary-html.js';
import type { Count } from '../../audit/summary/tally.js';
import { OperatorError } from '../../config/operator-error.js';
import { creationProblemOf } from '../../config/operator-file.js';
import { printableJson } from '../admin/printable.js';
import { tableLines } from '../admin/table.js';
import type { CommandIo } from '../command-io.js';
import { logFilesOf, searchIn, searchOptions, type SearchOptions } from './log-options.js';
import { openVerifier, type ProofOptions, proofOptions, requireUsable, verdictJson } from './verify.js';

interface Options extends SearchOptions, ProofOptions {
  readonly config?: string;
  readonly verify?: true;
  readonly html?: string;
  readonly json?: true;
}

const proofNames = [
  'registry',
  'tokenFile',
  'secretFile',
  'checkpoints',
  'publicKey',
  'witnessKey',
  'head',
  'running',
  'asOf',
  'partial',
] as const;

/** Creates the command `audit summary`. */
export function summaryCommand(io: CommandIo): Command {
  const command = new Command('summary')
    .description(
      'count the requests in a log by refusal code, merchant, address and country, and list keys sent over plain HTTP or through Tor',
    )
    .argument(
      '[file...]',
      'files of the log in order, oldest first; .gz files are decompressed, "-" means standard input',
    );
  searchOptions(command)
    .option('--html <file>', 'write a self-contained page with charts')
    .option('--json', 'print JSON')
    .option('--verify', 'also verify all lines, as "merchant-gateway audit verify" does, and report the findings');
  return proofOptions(command)
    .addHelpText(
      'after',
      '\nExit status: 0 done, 1 findings of --verify or unreadable files, 2 wrong usage. --verify verifies all lines, including lines that the filters exclude.',
    )
    .action((files: string[], options: Options) => {
      const isWithout = options.verify === undefined && proofNames.some((name) => options[name] !== undefined);
      if (isWithout)
        command.error('error: options for the verification, such as --checkpoints, have an effect only with --verify');
      requireUsable(command, options);
      const chosen = { ...options, ...searchIn(command, options) };
      return summarise(logFilesOf(command, files, options.config), chosen, io);
    });
}

async function summarise(files: readonly string[], options: Options, { out, err }: CommandIo): Promise<void> {
  const summing = new SummaryBuilder();
  // Verify all lines, even those that the filters exclude, because the hash of each line covers the hash of the
  // previous line.
  const open = options.verify === undefined ? null : await openVerifier(options, -Infinity, err);
  const isEmpty = new Set(files);
  for await (const lines of readLogLines(files)) {
    for (const line of lines) {
      open?.verifier.take(line);
      isEmpty.delete(line.file);
      const read = findCounted(line.bytes);
      if (read === null) summing.add(null);
      else if (matches(read.entry, options)) {
        if (read.isSealed) summing.add(read.entry, options.code);
        else summing.leaveOut();
      }
    }
  }
  for (const file of isEmpty) open?.verifier.empty(file);
  const summary = summing.end();
  const verdict = (await open?.end(true)) ?? null;
  if (options.html !== undefined) await writePage(options.html, summary, verdict);
  const proof = verdict && verdictJson(verdict, null);
  out(options.json === true ? `${printableJson({ ...summary, proof })}\n` : asText(summary, verdict));
  err(ignoredLinesWarning(summary.leftOutLines) + incompleteText(summary));
  if (verdict?.intact === false) throw new OperatorError(verdictText(verdict));
}

async function writePage(file: string, summary: Summary, verdict: Verdict | null): Promise<void> {
  try {
    await writeFile(file, summaryHtml(summary, verdict, 'merchant-gateway: access log'), { mode: 0o640 });
  } catch (error) {
    throw new OperatorError(`${file} cannot be written: ${creationProblemOf(error)}.`, { cause: error });
  }
}

function asText(summary: Summary, verdict: Verdict | null): string {
  const { requests, accepted, from, to, newAddresses, newAddressCount } = summary;
  const table = (heading: string, list: CountedList): string[] => {
    const counts: readonly Count[] = summary[list];
    const more = summary.distinct[list] - counts.length;
    if (counts.length === 0) return [];
    const rows = counts.map(({ value, count }) => [value, String(count)]);
    return ['', ...tableLines([heading, 'REQUESTS'], rows), ...(more > 0 ? [`and ${more} more`] : [])];
  };
  if (requests === 0) return `No requests to count.\n${verdict === null ? '' : `${verdictText(verdict)}\n`}`;
  const lines = [
    `${counted(requests, 'request')} from ${from ?? '-'} to ${to ?? '-'}: ${accepted} accepted, ${requests - accepted} not accepted.`,
    verdict === null
      ? 'The lines were not verified: add --verify, or use "merchant-gateway audit verify".'
      : verdictText(verdict),
    ...longestSilence(summary),
    ...table('NOT ACCEPTED BECAUSE', 'codes'),
    ...unusual(summary),
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
          ...(newAddressCount > newAddresses.length
            ? [`and ${newAddressCount - newAddresses.length} more, which are older`]
            : []),
        ]),
  ];
  return `${lines.join('\n')}\n`;
}

function longestSilence({ silences: [longest] }: Summary): string[] {
  if (longest === undefined) return [];
  return [`Longest time without a request: ${longest.minutes} min, from ${longest.from} to ${longest.to}.`];
}

function unusual({ unusualMerchants }: Summary): string[] {
  if (unusualMerchants.length === 0) return [];
  const rows = unusualMerchants.map(({ merchant, refused, requests, reasons }) => [
    merchant,
    String(refused),
    String(requests),
    reasons.map(({ value }) => value).join(', '),
  ]);
  return ['', ...tableLines(['MERCHANT, UNUSUALLY REFUSED', 'REFUSED', 'REQUESTS', 'MAIN REASONS'], rows)];
}
