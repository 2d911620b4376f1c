import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { InvalidArgumentError } from 'commander';
import type { Command } from 'commander';
import type { Search } from '../../audit/search.js';
import { closestName } from '../../config/closest-name.js';
import { loadConfig } from '../../config/load.js';
import { gatewayErrors } from '../../edge/request/errors.js';
import { denials } from '../../policy/decision-table.js';
import { compileIpRanges, InvalidIpRange } from '../../policy/ip-ranges.js';
import type { IpRanges } from '../../policy/ip-ranges.js';
import { beginsWithDay } from '../../rest/moment.js';
import { formerKeyOption, loggedIdIn, secondsIn } from '../admin/arguments.js';

/**
 * The files that were named, or else the one that a configuration has its log written to.
 * @param command ends with its usage where neither is given
 */
export function logFilesOf(command: Command, files: readonly string[], config?: string): readonly string[] {
  if (config === undefined && files.length === 0)
    command.error('error: name the files of the log, or the configuration: --config');
  if (config === undefined) return files;
  const { destination } = loadConfig({ file: config }).accessLog;
  if (files.length > 0) return files;
  if (destination === 'stdout')
    command.error('error: the configuration has its log on standard output: name its files');
  const ofWorkers = existsSync(destination) ? [] : logsOfWorkers(destination);
  if (ofWorkers.length > 0)
    command.error(`error: there is no ${destination}, but logs of --workers: name their files: ${ofWorkers.join(' ')}`);
  return [destination];
}

/** The files that workers have beside one that is not there: `access.1.log` for `access.log`. */
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
    return []; // the log itself cannot be read either, and that is told
  }
}

/** The options by which `search` and `summary` choose lines. */
export function searchOptions(command: Command): Command {
  return command
    .option('--config <file>', 'configuration file that names the log, where no file is named')
    .option('--merchant <id>', 'whose requests', loggedIdIn)
    .option('--key-id <keyid>', 'with this key', loggedIdIn)
    .addOption(formerKeyOption().argParser(loggedIdIn))
    .option('--fingerprint <hex>', 'by what keys fingerprint prints', fingerprintIn)
    .option('--code <code>', 'accepted, or the code of a refusal', codeIn)
    .option('--address <address>', 'from an address or a CIDR, of the client or of its proxy', rangesIn)
    .option('--path <path>', 'to a path and whatever is below it, without a query', pathIn)
    .option('--since <time>', 'from then on: 2026-11-20T10:00:00Z, or 24h for a day ago', timeIn)
    .option('--until <time>', 'up to but without then', timeIn)
    .option('--request-id <id>', 'by the x-request-id of the answer');
}

/** The options of `searchOptions` as they are read. */
export type SearchOptions = Search & { readonly key?: string };

/**
 * What is looked for.
 * @param command ends with its usage where nothing could ever match
 */
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
  throw new InvalidArgumentError(`${meant}Expected accepted or a code of the README's error tables.`);
}

function fingerprintIn(value: string): string {
  if (/^[0-9a-f]{32}$/i.test(value)) return value.toLowerCase();
  throw new InvalidArgumentError('Expected the 32 hexadecimal digits that keys fingerprint prints.');
}

function pathIn(value: string): string {
  if (value.startsWith('/') && !/[?#\s]/.test(value)) return value;
  throw new InvalidArgumentError('Expected a path such as /v1/payouts, without a query.');
}

const timeForm = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2}))?$/;

/** Reads a date, or a date and time with its zone; null for anything else, a day that no calendar has too. */
export function momentOf(value: string): number | null {
  const time = timeForm.test(value) && beginsWithDay(value) ? Date.parse(value) : NaN;
  return Number.isNaN(time) ? null : time;
}

/** Reads the argument of an option that is a time, in milliseconds since 1970. */
export function timeIn(value: string): number {
  if (/^\d+[smhd]$/.test(value)) return Date.now() - secondsIn(value) * 1000;
  const time = momentOf(value);
  if (time !== null) return time;
  throw new InvalidArgumentError('Expected a time such as 2026-11-20, 2026-11-20T10:00:00Z, or 24h.');
}

function rangesIn(value: string): IpRanges {
  try {
    return compileIpRanges([value]);
  } catch (error) {
    if (error instanceof InvalidIpRange) throw new InvalidArgumentError('Expected an IP address or CIDR.');
    throw error;
  }
}
