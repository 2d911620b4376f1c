import type { Readable } from 'node:stream';
import { Command } from 'commander';
import { type AccessEntry, parseAccessEntry } from '../../audit/access-entry.js';
import { readLogLines } from '../../audit/log-lines.js';
import { loadConfig } from '../../config/load.js';
import { OperatorError } from '../../config/operator-error.js';
import type { Config } from '../../config/schema.js';
import { explainRequest } from '../../edge/explain-request.js';
import { createRouteTable } from '../../edge/request/routes.js';
import { compileIpRanges } from '../../policy/ip-ranges.js';
import { keyPrefixes } from '../../policy/key-format.js';
import { createLogger } from '../../telemetry/logger.js';
import { collect } from '../admin/arguments.js';
import { WrongUsage } from '../admin/peer.js';
import { printable, printableJson } from '../admin/printable.js';
import { readKey } from '../audit/fingerprint.js';
import type { CommandIo } from '../command-io.js';
import { openGeoIp, openLoadedTorExits } from '../compose/gateway-ports.js';
import { systemClock } from '../compose/system-clock.js';
import { describedRequest, keyOf } from './described-request.js';
import { descriptionIn, type DescriptionOptions } from './description.js';
import { explanationLines, explanationView } from './explanation-view.js';
import { findStoredRecord, type KeySought, type StoredRecord } from './stored-record.js';

interface Options extends DescriptionOptions {
  readonly config?: string;
  readonly line?: string;
  readonly json?: true;
}

const exampleText = `
Headers that decide: Origin, Referer, Host, X-Forwarded-For and X-Forwarded-Proto. A key is never an argument:
  explain --key-id key_… --address 203.0.113.9 --path /v1/payouts --header 'Origin: https://shop.example'
  audit search --json --request-id … access.log | explain --line -
`;

/** `explain`: what would be decided about a request, and why. */
export function explainCommand(io: CommandIo, input: Readable = process.stdin): Command {
  const command = new Command('explain')
    .description('say what would be decided about a request, rule by rule; it is sent nowhere')
    .option('--config <file>', 'configuration file of the gateway; without one, the defaults')
    .option('--key-id <keyid>', 'with this key')
    .option('--merchant <id>', 'with a key of this merchant, an active one of this environment where there is one')
    .option('--key-stdin', 'with the key that is read from standard input')
    .option('--address <ip>', 'who opens the connection: the client, or a proxy in front of the gateway')
    .option('--plain', 'over plain HTTP, not TLS')
    .option('--method <method>', 'such as POST; or else GET')
    .option('--path <path>', 'with the base path, such as /v1/payouts')
    .option('--header <header>', "such as 'Origin: https://shop.example'; may be repeated", collect)
    .option('--at <time>', 'at that time, such as 2026-11-20T10:00:00Z; or else now')
    .option('--line <file>', 'the request of a line of the access log; - is standard input')
    .option('--json', 'print JSON, and nothing else')
    .addHelpText('after', exampleText);
  return command.action(async (options: Options) => {
    try {
      await explain(options, io, input);
    } catch (error) {
      if (error instanceof WrongUsage) command.error(`error: ${error.message}`);
      throw error;
    }
  });
}

async function explain(options: Options, io: CommandIo, input: Readable): Promise<void> {
  const config = loadConfig({ file: options.config });
  const { description, key: named } = descriptionIn(options);
  if (named === 'stdin' && options.line === '-') throw new WrongUsage('standard input holds a key or a line, not both');
  const entry = options.line === undefined ? null : await readEntry(options.line, input);
  const sought: KeySought | null =
    named === 'stdin' ? { key: await readKey(input) } : (named ?? (entry === null ? null : keyOf(entry)));
  const request = describedRequest(description, entry);
  const record = sought === null ? null : await findStoredRecord(config, sought);
  const apiKey = sought !== null && 'key' in sought ? sought.key : placeholder(config, record, entry);
  const headers = apiKey === null ? request.headers : [...request.headers, ['x-api-key', apiKey] as const];
  const explanation = await explainWith(config, { ...request, headers }, record);
  const view = explanationView({
    environment: config.environment,
    request,
    record,
    explanation,
    logged: entry === null ? null : { code: entry.event.code, reason: entry.event.reason ?? null },
  });
  io.out(
    options.json === true
      ? `${printableJson(view)}\n`
      : explanationLines(view)
          .map((line) => `${printable(line)}\n`)
          .join(''),
  );
}

async function explainWith(
  config: Config,
  request: Parameters<typeof explainRequest>[0],
  record: StoredRecord | null,
): ReturnType<typeof explainRequest> {
  const log = createLogger('warn');
  const geoIp = await openGeoIp(config, log);
  const torExits = await openLoadedTorExits(config, log, 'none');
  try {
    return await explainRequest(request, {
      environment: config.environment,
      trustedProxies: compileIpRanges(config.trustedProxies),
      torExits,
      geoIp,
      clock: systemClock,
      keyStore: record?.keyStore ?? nobodysKeys,
      pepper: null, // the record is found already
      routes: createRouteTable(config),
      headLimits: config.limits,
      maxBodyBytes: config.limits.bodyBytes,
    });
  } finally {
    geoIp?.close();
    await torExits.close();
  }
}

const nobodysKeys = {
  find: () => Promise.resolve({ credential: null, source: 'store', ageMilliseconds: 0 } as const),
};

/** Stands for a key that nobody has shown: the rules see its form alone, and its record is known. */
function placeholder({ environment }: Config, record: StoredRecord | null, entry: AccessEntry | null): string | null {
  const stored = record?.key?.environment;
  if (record !== null) return keyPrefixes[stored === 'live' || stored === 'test' ? stored : environment];
  if (entry?.event.code === 'key_format') return 'of another form';
  if (entry?.gateway.key?.fingerprint === undefined) return null;
  if (entry.event.code === 'test_key_in_live') return keyPrefixes.test;
  return keyPrefixes[entry.event.code === 'live_key_in_test' ? 'live' : environment];
}

async function readEntry(file: string, input: Readable): Promise<AccessEntry> {
  const entries: AccessEntry[] = [];
  for await (const lines of readLogLines([file], input)) {
    for (const { bytes } of lines) {
      const entry = parseAccessEntry(bytes?.toString('utf8') ?? '');
      if (entry !== null) entries.push(entry);
      if (entries.length > 1) throw new OperatorError('There is more than one request: choose one by audit search.');
    }
  }
  const [entry] = entries;
  if (entry === undefined) throw new OperatorError('There is no line of a request.');
  const count = entry.gateway.aggregate?.count;
  if (count !== undefined)
    throw new OperatorError(`${count} requests share this line, which does not say what each of them was.`);
  return entry;
}
