import type { Readable } from 'node:stream';
import { Command } from 'commander';
import { type AccessEntry, parseAccessEntry } from '../../audit/access-entry.js';
import { counted } from '../../audit/finding.js';
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
Relevant headers: Origin, Referer, Host, X-Forwarded-For and X-Forwarded-Proto.
Never pass an API key as an argument. Use --key-id, --merchant or --key-stdin instead.

Examples:
  explain --key-id key_… --address 203.0.113.9 --path /v1/payouts --header 'Origin: https://shop.example'
  audit search --json --request-id … access.log | explain --line -
`;

/** Creates the command `explain`, which shows what a gateway would decide about a request and why. */
export function explainCommand(io: CommandIo, input: Readable = process.stdin): Command {
  const command = new Command('explain')
    .description('explain rule by rule how a gateway would decide about a request, without sending it')
    .option('--config <file>', 'configuration file of the gateway (default: built-in defaults)')
    .option('--key-id <keyid>', 'use the key with this id')
    .option(
      '--merchant <id>',
      'use a key of this merchant, preferably an active key for the environment of the gateway',
    )
    .option('--key-stdin', 'use the key read from standard input')
    .option('--address <ip>', 'IP address of the client or proxy that connects to the gateway')
    .option('--plain', 'assume a request over plain HTTP instead of TLS')
    .option('--method <method>', 'method, e.g. POST (default: GET)')
    .option('--path <path>', 'path including the base path, e.g. /v1/payouts')
    .option('--header <header>', "header, e.g. 'Origin: https://shop.example' (repeatable)", collect)
    .option('--at <time>', 'time of the request, e.g. 2026-11-20T10:00:00Z (default: now)')
    .option('--line <file>', 'file with the access-log line of a request to explain; - reads standard input')
    .option('--json', 'print only JSON')
    .addHelpText('after', exampleText);
  return command.action((options: Options) => explain(options, io, input));
}

async function explain(options: Options, io: CommandIo, input: Readable): Promise<void> {
  const config = loadConfig({ file: options.config });
  const { description, key: named } = descriptionIn(options);
  if (named === 'stdin' && options.line === '-')
    throw new WrongUsage('standard input can contain a key or a log line, not both');
  const entry = options.line === undefined ? null : await readEntry(options.line, input);
  const sought: KeySought | null =
    named === 'stdin' ? { key: await readKey(input) } : (named ?? (entry === null ? null : keyOf(entry)));
  const request = describedRequest(description, entry);
  const record = sought === null ? null : await findStoredRecord(config, sought, request.at);
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
      keyStore: record?.keyStore ?? emptyKeyStore,
      pepper: null, // not needed, because the record was already looked up
      routes: createRouteTable(config),
      headLimits: config.limits,
      maxBodyBytes: config.limits.bodyBytes,
    });
  } finally {
    geoIp?.close();
    await torExits.close();
  }
}

const emptyKeyStore = {
  find: () => Promise.resolve({ credential: null, source: 'store', ageMilliseconds: 0 } as const),
};

/**
 * Returns a placeholder for the unknown API key; null if the request has no key. The placeholder suffices: the rules
 * check only the form and prefix of a key, and the key's record was already looked up.
 */
function placeholder({ environment }: Config, record: StoredRecord | null, entry: AccessEntry | null): string | null {
  const stored = record?.key?.environment;
  if (record !== null) return keyPrefixes[stored === 'live' || stored === 'test' ? stored : environment];
  if (entry === null) return null;
  const { code } = entry.event;
  if (code === 'key_format') return 'of another form';
  if (code === 'test_key_in_live') return keyPrefixes.test;
  if (code === 'live_key_in_test') return keyPrefixes.live;
  // With any code other than key_unknown, only a fingerprint shows that the request had a key.
  const hadKey = code === 'key_unknown' || entry.gateway.key?.fingerprint !== undefined;
  return hadKey ? keyPrefixes[environment] : null;
}

async function readEntry(file: string, input: Readable): Promise<AccessEntry> {
  const entries: AccessEntry[] = [];
  for await (const lines of readLogLines([file], input)) {
    for (const { bytes } of lines) {
      const entry = parseAccessEntry(bytes?.toString('utf8') ?? '');
      if (entry !== null) entries.push(entry);
      if (entries.length > 1)
        throw new OperatorError(
          'The input has more than one request: select one with "merchant-gateway audit search --json".',
        );
    }
  }
  const [entry] = entries;
  if (entry === undefined) throw new OperatorError('The input has no access-log line of a request.');
  const count = entry.gateway.aggregate?.count;
  if (count !== undefined)
    throw new OperatorError(
      `The line cannot be explained, because it stands for ${counted(count, 'request')} and has no details of single requests.`,
    );
  return entry;
}
