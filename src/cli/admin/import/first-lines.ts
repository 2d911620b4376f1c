import type { Entry } from '../../../registry/imports/entry.js';

/** Remembers where in a file each id comes first. */
export class FirstLines {
  readonly #lookupIds = new Map<string, number>();
  readonly #keyIds = new Map<string, number>();
  readonly #merchants = new Map<string, number>();

  /** Takes in an entry; says what is wrong if one of its ids has come before. */
  take(entry: Entry, line: number): string | null {
    if (entry.type === 'merchant') return repeated(this.#merchants, 'merchantId', entry.merchantId, line);
    // Half the characters, of one byte each: there may be millions.
    const hash = Buffer.from(entry.lookupId, 'hex').toString('latin1');
    const problem = repeated(this.#lookupIds, 'lookupId', hash, line);
    if (problem !== null || entry.keyId === null) return problem;
    return repeated(this.#keyIds, 'keyId', entry.keyId, line);
  }

  /** Whether a line so far is of this merchant. */
  hasMerchant(merchantId: string): boolean {
    return this.#merchants.has(merchantId);
  }
}

function repeated(seen: Map<string, number>, field: string, value: string, line: number): string | null {
  const first = seen.get(value);
  if (first !== undefined) return `${field} is that of line ${first} already`;
  seen.set(value, line);
  return null;
}
