import { parseIpAddress } from '../../policy/ip-address.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { ExitListRefused } from './exit-list-refused.js';

/** A line of the exit-addresses format that was not cut off: its time is behind its address. */
const exitLine = /^ExitAddress (?<address>\S+) \d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}$/;
/** The lines of the exit-addresses format that hold no address. */
const relayLine = /^(?:ExitNode|Published|LastStatus) /;

/** A line of a list that means something, and its number. */
export interface ContentLine {
  readonly content: string;
  readonly number: number;
}

/** The lines that are neither blank nor a comment (`#`), without the blanks around them. */
export function* contentLines(text: string): Generator<ContentLine> {
  let number = 0;
  for (let start = 0; start <= text.length;) {
    const end = text.indexOf('\n', start);
    const line = text.slice(start, end === -1 ? text.length : end).trim();
    number += 1;
    if (line !== '' && !line.startsWith('#')) yield { content: line, number };
    start = end === -1 ? text.length + 1 : end + 1;
  }
}

/** The addresses of a list with one a line (`torbulkexitlist`), or with `ExitAddress` lines in blocks (`exit-addresses`). */
export function* addressesInLines(text: string): Generator<IpAddress> {
  for (const { content, number } of contentLines(text)) {
    if (relayLine.test(content)) continue;
    const address = parseIpAddress(exitLine.exec(content)?.groups?.address ?? content);
    if (address === null) {
      throw new ExitListRefused('malformed', `line ${number} is neither an address nor a line of Tor's exit list`);
    }
    yield address;
  }
}
