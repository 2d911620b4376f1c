import { parseIpAddress } from '../../policy/ip-address.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { ExitListRefused } from './exit-list-refused.js';
import { contentLines } from './line-list.js';

/** What the column with the address is called, in small letters without blanks and signs. */
const addressColumns: ReadonlySet<string> = new Set(['ip', 'ipaddr', 'ipaddress', 'address', 'exitaddress']);
const maxColumns = 64;

/** Says whether a text is a table: its first line names columns. */
export function isCsv(text: string): boolean {
  const [heading] = contentLines(text);
  return heading?.content.includes(',') === true;
}

/** The addresses of a table whose heading names a column of addresses, such as `fingerprint, ipaddr, port`. */
export function* addressesInCsv(text: string): Generator<IpAddress> {
  let width = 0;
  let column = -1;
  for (const { content, number } of contentLines(text)) {
    const cells = content.split(',', maxColumns + 1).map((cell) => cell.trim().replace(/^"([^"]*)"$/, '$1'));
    if (column === -1) {
      width = cells.length;
      column = cells.findIndex((name) => addressColumns.has(name.toLowerCase().replaceAll(/[ _-]/g, '')));
      if (column === -1 || width > maxColumns) {
        throw new ExitListRefused('malformed', `line ${number} is no address, and names no column "ip" or "address"`);
      }
      continue;
    }
    const address = cells.length === width ? parseIpAddress(cells[column] ?? '') : null;
    if (address === null) {
      throw new ExitListRefused('malformed', `line ${number} has no address in the column that line 1 names`);
    }
    yield address;
  }
}
