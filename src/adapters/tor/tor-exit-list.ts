import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import type { TorExits } from '../../gateway/ports.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { InvalidExitList, parseExitList } from './exit-list-parser.js';

const maxListBytes = 16 * 1024 * 1024;

/** A set of Tor exits. Addresses are compared by value, so that no spelling of one slips past. */
export class TorExitList implements TorExits {
  readonly #ipv4 = new Set<number>();
  readonly #ipv6 = new Set<bigint>();

  constructor(addresses: Iterable<IpAddress>) {
    for (const address of addresses) {
      if (address.family === 4) this.#ipv4.add(address.value);
      else this.#ipv6.add(address.value);
    }
  }

  has(address: IpAddress): boolean {
    return address.family === 4 ? this.#ipv4.has(address.value) : this.#ipv6.has(address.value);
  }

  get size(): number {
    return this.#ipv4.size + this.#ipv6.size;
  }
}

/**
 * Reads list files and joins them.
 * @throws OperatorError when one cannot be read or is not a list
 */
export async function readTorExitFiles(files: readonly string[], allowReserved: boolean): Promise<TorExitList> {
  const addresses: IpAddress[] = [];
  for (const file of files) {
    const text = await readOperatorFile(file, 'The Tor exit list', maxListBytes);
    try {
      for (const address of parseExitList(text.toString('utf8'), allowReserved).addresses) addresses.push(address);
    } catch (error) {
      if (!(error instanceof InvalidExitList)) throw error;
      throw new OperatorError(`The Tor exit list ${file} cannot be used: ${error.message}.`, { cause: error });
    }
  }
  return new TorExitList(addresses);
}
