import { parseIpAddress } from '../../policy/ip-address.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { isReservedAddress } from '../../policy/reserved-addresses.js';

/** A line of the exit-addresses format that was not cut off: its time is behind its address. */
const exitLine = /^ExitAddress (?<address>\S+) \d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}$/;

/** What a list of Tor exits said. */
export interface ParsedExitList {
  readonly addresses: readonly IpAddress[];
  /** Addresses left out because they are private, loopback or for documentation. */
  readonly reserved: number;
}

/** A text that is not a list of Tor exits: an HTML page, say, or half a download. */
export class InvalidExitList extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'InvalidExitList';
  }
}

const maxAddresses = 200_000;
/** The lines of the exit-addresses format that hold no address. */
const relayLine = /^(?:ExitNode|Published|LastStatus) /;

/**
 * Parses either of Tor's list formats: one address a line (`torbulkexitlist`; `#` begins a comment), or
 * `ExitAddress <ip> <time>` lines in blocks (`exit-addresses`).
 * @param allowReserved whether to keep addresses that are not on the public internet
 * @throws InvalidExitList for any other line, for a list without an address and for one that is too long
 */
export function parseExitList(text: string, allowReserved: boolean): ParsedExitList {
  const addresses = new Map<string, IpAddress>();
  let reserved = 0;
  text.split(/\r?\n/).forEach((line, index) => {
    const content = line.trim();
    if (content === '' || content.startsWith('#') || relayLine.test(content)) return;
    const address = parseIpAddress(exitLine.exec(content)?.groups?.address ?? content);
    if (address === null) {
      throw new InvalidExitList(`line ${index + 1} is neither an address nor a line of Tor's exit list`);
    }
    if (!allowReserved && isReservedAddress(address)) reserved += 1;
    else addresses.set(address.text, address);
  });
  if (addresses.size === 0) {
    const kept = reserved === 0 ? '' : ` (${reserved} are in reserved ranges; torExits.allowReserved would keep them)`;
    throw new InvalidExitList(`it holds no address that could be a Tor exit${kept}`);
  }
  if (addresses.size > maxAddresses) throw new InvalidExitList(`it holds more than ${maxAddresses} addresses`);
  return { addresses: [...addresses.values()], reserved };
}
