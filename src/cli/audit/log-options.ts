import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { InvalidArgumentError } from 'commander';
import type { Command } from 'commander';
import type { Search } from '../../audit/search.js';
import { closestName } from '../../config/closest-name.js';
import { loadConfig } from '../../config/load.js';
import { gatewayErrors } from '../../policy/gateway-errors.js';
import { denials } from '../../policy/decision-table.js';
import { type IpRange, parseIpRange } from '../../policy/ip-ranges.js';
import { beginsWithDate } from '../../rest/moment.js';
import { formerKeyOption, loggedIdIn, secondsIn } from '../admin/arguments.js';

/**
 * Returns the named log files, or the log file of a configuration if no file is named.
 * @param command reports a usage error in three cases: neither a file nor a configuration is given, the configured log
 *   is standard output, or only the log files of worker processes exist
 */
export function logFilesOf(command: Command, files: readonly string[], config?: string): readonly string[] {
  if (config === undefined && files.length === 0)
    command.error('error: give the log files as arguments, or a configuration file with --config');
  if (config === undefined) return files;
  const { destination } = loadConfig({ file: config }).accessLog;
  if (files.length > 0) return files;
  if (destination === 'stdout')
    command.error('error: the configuration writes the access log to standard output; give the log files as arguments');
  const ofWorkers = existsSync(destination) ? [] : logsOfWorkers(destination);
  if (ofWorkers.length > 0)
    command.error(
      `error: ${destination} does not exist, but worker processes have written log files. Give these files as arguments: ${ofWorkers.join(' ')}`,
    );
  return [destination];
}

/**
 * Finds the log files of worker processes, such as `access.1.log`, next to the configured `access.log`. Each worker
 * writes its own file, so the configured file does not exist.
 */
function logsOfWorkers(destination: string): string[] {
  const { dir, name, ext } = path.parse(destination);
  const numberOf = (file: string): number => {
    const isLike = file.startsWith(`${name}.`) && file.endsWith(ext);
    const digits = isLike ? file.slice(name.length + 1, file.length - ext.length) : '';
    return /^\d{1,2}$/.test(digits) ? Number(digits) : 0;
  };
  const numbered = filesIn(dir)
    .filter((file) => numberOf(file) > 0)
    .sort((one, other) => numberOf(one) - numberOf(other));
  return numbered.map((file) => path.join(dir, file));
}

function filesIn(directory: string): string[] {
  try {
    return readdirSync(directory === '' ? '.' : directory);
  } catch {
    return []; // the log itself is then unreadable too, and opening it reports the error
  }
}

/** Adds the options that filter lines in `audit search` and `audit summary`. */
export function searchOptions(command: Command): Command {
  return command
    .option('--config <file>', 'configuration file that names the log file to read if you give no file as an argument')
    .option('--merchant <id>', 'requests of this merchant', loggedIdIn)
    .option('--key-id <keyid>', 'requests with this key', loggedIdIn)
    .addOption(formerKeyOption().argParser(loggedIdIn))
    .option(
      '--fingerprint <hex>',
      'requests with this key fingerprint, as "merchant-gateway keys fingerprint" prints it',
      fingerprintIn,
    )
    .option('--code <code>', 'requests with this result: accepted, or an error code', codeIn)
    .option('--address <address>', 'requests from or through this IP address or CIDR (client or proxy)', rangeIn)
    .option('--path <path>', 'requests for this path and all paths below it; give the path without a query', pathIn)
    .option(
      '--since <time>',
      'requests at or after this time, e.g. 2026-11-20T10:00:00Z, or 24h for one day ago',
      timeIn,
    )
    .option('--until <time>', 'requests before this time', timeIn)
    .option('--request-id <id>', 'request whose response has this x-request-id');
}

/** The parsed options that `searchOptions` adds. */
export type SearchOptions = Search & { readonly key?: string };

/** Returns the search that the options describe. @param command reports a usage error if the time range is empty */
export function searchIn(command: Command, { key, keyId = key, ...search }: SearchOptions): Search {
  const { since = -Infinity, until = Infinity } = search;
  if (since >= until) command.error('error: --until must be later than --since');
  return { ...search, keyId };
}

const codes: readonly string[] = ['accepted', ...denials.map(({ code }) => code), ...Object.keys(gatewayErrors)];

function codeIn(value: string): string {
  if (codes.includes(value)) return value;
  const closest = closestName(value, codes);
  const meant = closest === undefined ? '' : `Did you mean ${closest}? `;
  throw new InvalidArgumentError(`${meant}Expected "accepted" or an error code that "merchant-gateway codes" lists.`);
}

function fingerprintIn(value: string): string {
  if (/^[0-9a-f]{32}$/i.test(value)) return value.toLowerCase();
  throw new InvalidArgumentError('Expected the 32 hexadecimal digits that "merchant-gateway keys fingerprint" prints.');
}

function pathIn(value: string): string {
  if (value.startsWith('/') && !/[?#\s]/.test(value)) return value;
  throw new InvalidArgumentError('Expected a path such as /v1/payouts, without a query.');
}

const timeForm = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2}))?$/;

/**
 * Parses a date, or a date and time with a time zone.
 * @returns milliseconds since 1970; null for an invalid text, e.g. for a day that does not exist
 */
export function parseTime(value: string): number | null {
  const time = timeForm.test(value) && beginsWithDate(value) ? Date.parse(value) : NaN;
  return Number.isNaN(time) ? null : time;
}

/**
 * Parses a time in an option: a date, a date and time, or a time span before now.
 * @returns milliseconds since 1970
 */
export function timeIn(value: string): number {
  if (/^\d+[smhd]$/.test(value)) return Date.now() - secondsIn(value) * 1000;
  const time = parseTime(value);
  if (time !== null) return time;
  throw new InvalidArgumentError(
    'Expected a time such as 2026-11-20 or 2026-11-20T10:00:00Z, or a span before now such as 24h.',
  );
}

function rangeIn(value: string): IpRange {
  const range = parseIpRange(value);
  if (range !== null) return range;
  throw new InvalidArgumentError('Expected an IP address or CIDR.');
}
