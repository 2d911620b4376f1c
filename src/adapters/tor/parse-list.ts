import { type IpAddress, parseIpAddress } from '../../policy/ip-address.js';
import Type, { Compile } from '../../typebox/typebox.js';
import { ExitListRejected } from './exit-source.js';

/**
 * Parses the addresses of a Tor exit list lazily. Detects the format: lines (`torbulkexitlist` and `exit-addresses`),
 * CSV, or the JSON of Onionoo details.
 * @throws ExitListRejected at the first malformed part, because a partial list is not accepted
 */
export function parseExitList(text: string): Generator<IpAddress> {
  const beginning = text.trimStart();
  if (beginning.startsWith('<'))
    throw new ExitListRejected('html', 'the content is an HTML or XML page, not a list of Tor exits');
  if (beginning.startsWith('{')) return addressesInOnionooDetails(beginning);
  return isCsv(text) ? addressesInCsv(text) : addressesInLines(text);
}

/** Possible names of the address column in a CSV header: lower case, without spaces, hyphens and underscores. */
const addressColumns: ReadonlySet<string> = new Set(['ip', 'ipaddr', 'ipaddress', 'address', 'exitaddress']);
const maxColumns = 64;

/** Whether a text is CSV, which is assumed if its first line contains a comma. */
function isCsv(text: string): boolean {
  const [heading] = contentLines(text);
  return heading?.content.includes(',') === true;
}

/** Parses CSV whose header names an address column, such as `fingerprint, ipaddr, port`. */
function* addressesInCsv(text: string): Generator<IpAddress> {
  let width = 0;
  let column = -1;
  for (const { content, number } of contentLines(text)) {
    const cells = content.split(',', maxColumns + 1).map((cell) => cell.trim().replace(/^"([^"]*)"$/, '$1'));
    if (column === -1) {
      width = cells.length;
      column = cells.findIndex((name) => addressColumns.has(name.toLowerCase().replaceAll(/[ _-]/g, '')));
      if (column === -1 || width > maxColumns) {
        throw new ExitListRejected(
          'malformed',
          `line ${number} is neither an address nor a CSV header with a column "ip" or "address"`,
        );
      }
      continue;
    }
    if (cells.length !== width)
      throw new ExitListRejected('malformed', `line ${number} does not have the ${width} columns of the CSV header`);
    const address = parseIpAddress(cells[column] ?? '');
    if (address === null) {
      throw new ExitListRejected('malformed', `line ${number} has no valid address in its address column`);
    }
    yield address;
  }
}

/** Matches a complete line of the exit-addresses format. A truncated line lacks the time after the address. */
const exitLine = /^ExitAddress (?<address>\S+) \d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}$/;
/** Matches lines of the exit-addresses format that contain no address. */
const relayLine = /^(?:ExitNode|Published|LastStatus) /;

/** A line that is neither blank nor a comment, and its number. */
interface ContentLine {
  readonly content: string;
  readonly number: number;
}

/** Yields the trimmed lines that are neither blank nor a comment (`#`). */
function* contentLines(text: string): Generator<ContentLine> {
  let number = 0;
  for (let start = 0; start <= text.length;) {
    const end = text.indexOf('\n', start);
    const line = text.slice(start, end === -1 ? text.length : end).trim();
    number += 1;
    if (line !== '' && !line.startsWith('#')) yield { content: line, number };
    start = end === -1 ? text.length + 1 : end + 1;
  }
}

/**
 * Parses a list with one address per line (`torbulkexitlist`), or with `ExitAddress` lines in blocks
 * (`exit-addresses`).
 */
function* addressesInLines(text: string): Generator<IpAddress> {
  for (const { content, number } of contentLines(text)) {
    if (relayLine.test(content)) continue;
    const address = parseIpAddress(exitLine.exec(content)?.groups?.address ?? content);
    if (address === null) {
      throw new ExitListRejected('malformed', `line ${number} is neither an address nor a line of Tor's exit list`);
    }
    yield address;
  }
}

/** The used part of an Onionoo details document; other members are ignored. */
const details = Compile(
  Type.Object({
    relays: Type.Array(
      Type.Object({
        flags: Type.Array(Type.String({ maxLength: 64 }), { maxItems: 64 }),
        or_addresses: Type.Array(Type.String({ maxLength: 64 }), { maxItems: 64 }),
        exit_addresses: Type.Optional(Type.Array(Type.String({ maxLength: 64 }), { maxItems: 1024 })),
      }),
    ),
  }),
);

/** Matches an address with port: `192.0.2.1:9001` or `[2001:db8::1]:9001`. */
const orAddress = /^(?:\[(?<ipv6>[^\]]+)\]|(?<ipv4>[^:]+)):\d{1,5}$/;

/**
 * Parses two kinds of addresses of relays with the flag Exit: the addresses on which a relay listens, and the addresses
 * from which its exit traffic was seen. Only the first kind includes IPv6. Relays without the flag are skipped, because
 * they carry no traffic out of Tor and could be home connections.
 */
function* addressesInOnionooDetails(text: string): Generator<IpAddress> {
  for (const [index, { flags, or_addresses, exit_addresses = [] }] of parse(text).relays.entries()) {
    if (!flags.includes('Exit')) continue;
    for (const listening of or_addresses) {
      const { ipv4, ipv6 } = orAddress.exec(listening)?.groups ?? {};
      yield addressIn(ipv6 ?? ipv4 ?? '', index);
    }
    for (const leaving of exit_addresses) yield addressIn(leaving, index);
  }
}

function addressIn(text: string, relay: number): IpAddress {
  const address = parseIpAddress(text);
  if (address === null) throw new ExitListRejected('malformed', `relay ${relay + 1} has an invalid address`);
  return address;
}

function parse(text: string) {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new ExitListRejected('malformed', 'the JSON is malformed; it may be truncated', {
      cause: error,
    });
  }
  if (details.Check(value)) return value;
  throw new ExitListRejected(
    'malformed',
    'the JSON is not a details document of Onionoo: expected relays, each with flags and or_addresses',
  );
}

/**
 * Decodes a list as UTF-8.
 * @throws ExitListRejected if the bytes are not UTF-8
 */
export function decodeList(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    throw new ExitListRejected('malformed', 'the content is not UTF-8 text', { cause: error });
  }
}
