import { Command } from 'commander';
import { type AccessEntry, addressOf, findEntry, ignoredLinesWarning } from '../../../audit/access-entry.js';
import { counted } from '../../../audit/finding.js';
import { type RawLine, readLogLines } from '../../../audit/log-lines.js';
import { loadConfig } from '../../../config/load.js';
import { dayMilliseconds, hourMilliseconds, type KeyUsage } from '../../../usage/batch.js';
import type { KeyState } from '../../../usage/unusual/key-state.js';
import type { Finding, Thresholds } from '../../../usage/unusual/finding.js';
import { observe } from '../../../usage/unusual/observe.js';
import { logFilesOf } from '../../audit/log-options.js';
import type { CommandIo } from '../../command-io.js';
import { printableJson } from '../printable.js';
import { tableLines } from '../table.js';

interface Options {
  readonly config?: string;
  readonly json?: true;
}

const mostFiles = 64;

/** Creates the command `unusual replay`. */
export function replayCommand(io: CommandIo): Command {
  const command = new Command('replay')
    .description('apply the rules for unusual use of keys to access logs, and print what the rules would have reported')
    .argument('[file...]', 'files of one or several logs; .gz files are decompressed, "-" means standard input')
    .option(
      '--config <file>',
      'configuration file with the thresholds; if you name no log file, the command reads the log file that the configuration names',
    )
    .option('--json', 'print JSON')
    .addHelpText(
      'after',
      '\nThis command changes nothing, and does not verify the log. "merchant-gateway audit verify" verifies it.',
    )
    .action(async (given: string[], { config, json }: Options) => {
      const files = logFilesOf(command, given, config);
      if (files.length > mostFiles)
        command.error(
          `error: give at most ${mostFiles} files; to read more, concatenate older files, pipe them to standard input and give "-" as a file`,
        );
      const replay = new Replay(loadConfig({ file: config }).registry.unusual);
      await replayFiles(files, replay, io);
      report(replay, io, json === true);
    });
  return command;
}

/** A request in a log, and its time in milliseconds since 1970. */
interface TimedEntry {
  readonly at: number;
  readonly entry: AccessEntry;
}

const progressMilliseconds = 500;

/** Reads all files at the same time. Each step compares the next request of every file, and replays the earliest. */
async function replayFiles(files: readonly string[], replay: Replay, { err, isTerminal }: CommandIo): Promise<void> {
  const cursors = await Promise.all(files.map(async (file) => Cursor.open(file, replay)));
  let open = cursors.filter(({ next }) => next !== null);
  let shownAt = performance.now();
  while (open.length > 0) {
    const first = open.reduce((one, other) =>
      (other.next?.at ?? Infinity) < (one.next?.at ?? Infinity) ? other : one,
    );
    if (first.next !== null) replay.take(first.next);
    const isMore = first.advance() || (await first.read());
    if (!isMore) open = open.filter((one) => one !== first);
    if (isTerminal !== true || performance.now() - shownAt < progressMilliseconds) continue;
    shownAt = performance.now();
    err(`\r${counted(replay.requests, 'request')}, until ${new Date(replay.to).toISOString()}`);
  }
  replay.end();
  if (isTerminal === true) err('\r\u001b[K');
}

/** Reads one file. `next` is the next request to replay; null if the file has no further request. */
class Cursor {
  next: TimedEntry | null = null;
  readonly #chunks: AsyncIterator<readonly RawLine[]>;
  readonly #replay: Replay;
  #lines: readonly RawLine[] = [];
  #at = 0;

  private constructor(file: string, replay: Replay) {
    this.#chunks = readLogLines([file])[Symbol.asyncIterator]();
    this.#replay = replay;
  }

  static async open(file: string, replay: Replay): Promise<Cursor> {
    const cursor = new Cursor(file, replay);
    await cursor.read();
    return cursor;
  }

  /**
   * Sets `next` to the next request in the lines read so far. @returns false if these lines contain no further request
   */
  advance(): boolean {
    for (; this.#at < this.#lines.length; this.#at += 1) {
      const found = findEntry(this.#lines[this.#at]?.bytes ?? null);
      const at = Date.parse(found?.entry['@timestamp'] ?? '');
      if (found === null || Number.isNaN(at)) continue;
      if (!found.isSealed) {
        this.#replay.ignored += 1; // not in the hash chain: anyone who can write to the file can insert such a line
        continue;
      }
      this.next = { at, entry: found.entry };
      this.#at += 1;
      return true;
    }
    this.next = null;
    return false;
  }

  /** Reads further lines until they contain a request. @returns false at the end of the file */
  async read(): Promise<boolean> {
    for (;;) {
      const chunk = await this.#chunks.next();
      if (chunk.done === true) return false;
      [this.#lines, this.#at] = [chunk.value, 0];
      if (this.advance()) return true;
    }
  }
}

/** A finding (unusual use of a key) in a log. */
interface ReplayedFinding extends Finding {
  readonly key: string;
  readonly merchant: string | null;
}

type MutableUsage = { -readonly [Name in keyof KeyUsage]: KeyUsage[Name] };

const minuteMilliseconds = 60_000;
const mostFindings = 10_000;

/**
 * Passes logged requests to the rules about unusual use, minute by minute. The registry passes the counts from the
 * gateways to the same rules.
 */
class Replay {
  readonly #thresholds: Thresholds;
  readonly #states = new Map<string, KeyState>();
  readonly #minute = new Map<string, MutableUsage>();
  #ends = -Infinity;
  readonly findings: ReplayedFinding[] = [];
  from = Infinity;
  to = -Infinity;
  requests = 0;
  ignored = 0;
  hasCountries = false;

  constructor(thresholds: Thresholds) {
    this.#thresholds = thresholds;
  }

  get keys(): number {
    return this.#states.size;
  }

  take({ at, entry }: TimedEntry): void {
    if (at >= this.#ends) {
      this.end();
      this.#ends = at - (at % minuteMilliseconds) + minuteMilliseconds;
    }
    this.from = Math.min(this.from, at);
    this.to = Math.max(this.to, at);
    this.requests += entry.gateway.aggregate?.count ?? 1;
    // Skip an aggregate line: it stands for several requests and names no key.
    const { id, fingerprint } = entry.gateway.key ?? {};
    const name = id ?? fingerprint;
    if (name === undefined || entry.gateway.aggregate !== undefined) return;
    const usage = this.#minute.get(name) ?? {
      ...{
        keyId: id ?? null,
        merchantId: entry.organization?.id ?? null,
        lookupId: id === undefined ? (fingerprint ?? null) : null,
      },
      ...{ codes: [], lastUse: null, addresses: [], agents: [] },
    };
    this.#minute.set(name, usage);
    addRequest(usage, at, entry);
    this.hasCountries ||= entry.client?.geo?.country_iso_code !== undefined;
  }

  /** Passes the requests of the current minute to the rules about unusual use. */
  end(): void {
    for (const [key, usage] of this.#minute) {
      const moment = { now: this.#ends, from: this.#ends - minuteMilliseconds, watchedSince: this.from };
      const { state, findings } = observe(this.#states.get(key) ?? null, usage, moment, this.#thresholds);
      this.#states.set(key, state);
      for (const finding of findings)
        if (this.findings.length < mostFindings) this.findings.push({ key, merchant: usage.merchantId, ...finding });
    }
    this.#minute.clear();
  }
}

function addRequest(usage: MutableUsage, at: number, entry: AccessEntry): void {
  const [hour, day] = [at - (at % hourMilliseconds), at - (at % dayMilliseconds)];
  const { code } = entry.event;
  const isAccepted = code === 'accepted';
  const ofCode = usage.codes.find((one) => one.code === code && one.hour === hour);
  if (ofCode !== undefined) ofCode.count += 1;
  else {
    const unmeasured = { totalMilliseconds: 0, slowestMilliseconds: 0, requestBytes: 0, responseBytes: 0 };
    usage.codes.push({ hour, code, count: 1, ...unmeasured });
  }
  const address = addressOf(entry);
  const country = entry.client?.geo?.country_iso_code ?? null;
  const asNumber = entry.client?.as?.number ?? null;
  const counts = { accepted: Number(isAccepted), refused: Number(!isAccepted) };
  const row = usage.addresses.find((one) => one.address === address && one.day === day);
  if (row === undefined) usage.addresses.push({ day, address, country, asNumber, ...counts, firstAt: at, lastAt: at });
  else {
    row.accepted += counts.accepted;
    row.refused += counts.refused;
    row.lastAt = Math.max(row.lastAt, at);
  }
  if (!isAccepted) return;
  if (address !== null) usage.lastUse = { at, address, country };
  const agent = entry.user_agent?.original ?? null;
  if (agent !== null && !usage.agents.some((one) => one.agent === agent)) usage.agents.push({ day, agent, count: 1 });
}

function report(replay: Replay, { out, err }: CommandIo, isJson: boolean): void {
  const { requests, keys, ignored, findings, hasCountries } = replay;
  const [from, to] = requests === 0 ? [null, null] : [replay.from, replay.to].map((at) => new Date(at).toISOString());
  const shown = findings.map(({ at, pattern: kind, ...finding }) => ({
    at: new Date(at).toISOString(),
    kind,
    ...finding,
  }));
  if (isJson) out(`${printableJson({ requests, keys, from, to, hasCountries, findings: shown })}\n`);
  else {
    const rows = shown.map(({ at, merchant, key, rule, message }) => [at, merchant ?? '-', key, rule, message]);
    const table = tableLines(['SEEN', 'MERCHANT', 'KEYID', 'RULE', 'WHAT'], rows, { wrap: ['WHAT'] });
    const range =
      requests === 0
        ? 'No request found.'
        : `${counted(findings.length, 'finding')} in ${counted(requests, 'request')} of ${counted(keys, 'key')}, from ${from ?? ''} to ${to ?? ''}.`;
    const more = findings.length === mostFindings ? [`Only the first ${mostFindings} findings are shown.`] : [];
    out(`${[...(rows.length === 0 ? [] : table), range, ...more].join('\n')}\n`);
  }
  if (!hasCountries && requests > 0)
    err(
      'No line has a country (see geoip in the configuration): the rules new-country and new-network report nothing.\n',
    );
  err(ignoredLinesWarning(ignored));
}
