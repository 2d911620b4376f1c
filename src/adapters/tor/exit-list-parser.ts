import type { IpAddress } from '../../policy/ip-address.js';
import { addressesInCsv, isCsv } from './csv-list.js';
import { ExitListRefused } from './exit-list-refused.js';
import { addressesInLines } from './line-list.js';
import { addressesInOnionooDetails } from './onionoo-details.js';

/**
 * The addresses in a list of Tor exits, one after the other, as they are read. Its format is told by its content: lines
 * (`torbulkexitlist` and `exit-addresses`), CSV, or the JSON of Onionoo's details.
 * @throws ExitListRefused at the first thing that is no part of the format: half a list is none
 */
export function parseExitList(text: string): Generator<IpAddress> {
  const beginning = text.trimStart();
  if (beginning.startsWith('<'))
    throw new ExitListRefused('html', 'it is an HTML or XML page, not a list of Tor exits');
  if (beginning.startsWith('{')) return addressesInOnionooDetails(beginning);
  return isCsv(text) ? addressesInCsv(text) : addressesInLines(text);
}
