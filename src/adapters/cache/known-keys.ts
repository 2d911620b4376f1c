/** Number of slots in a bucket of the hash table. A slot takes four bytes. */
const slotsPerBucket = 8;
const minSlots = 65_536;
const maxSlots = 4_194_304;
const slotsPerEntry = 8;
/**
 * The end offsets of two parts of a lookup id (a key's hash in hex). A slot stores digits 0 to 7, and digits 8 to 15
 * select the bucket.
 */
const [numberEnd, bucketEnd] = [8, 16];

/**
 * A compact set of API keys that exist. The gateway does not count a lookup of these keys as an attempt to guess a key,
 * even after the record cache has evicted their records. The set stores 32 bits of each key's hash, and a full bucket
 * evicts its oldest entry. About one unknown key in 500,000,000 is mistaken for a known one, which costs only one
 * lookup in the store.
 */
export class KnownKeys {
  readonly #slots: Uint32Array;
  readonly #bucketMask: number;

  /**
   * @param maxEntries maximum number of records in the record cache; this set has room for several times as many keys
   * and takes 256 KiB to 16 MiB
   */
  constructor(maxEntries: number) {
    let places = minSlots;
    while (places < maxEntries * slotsPerEntry && places < maxSlots) places *= 2;
    this.#slots = new Uint32Array(places);
    this.#bucketMask = places / slotsPerBucket - 1;
  }

  /**
   * Adds keys to the set.
   * @param lookupIds the hashes of existing keys, of 64 hex digits each
   */
  note(lookupIds: readonly string[]): void {
    for (const id of lookupIds) this.#noteOne(id);
  }
  has(lookupId: string): boolean {
    const number = numberOf(lookupId);
    const first = this.#bucketOf(lookupId);
    for (let place = first; place < first + slotsPerBucket; place += 1) if (this.#slots[place] === number) return true;
    return false;
  }

  #noteOne(lookupId: string): void {
    const places = this.#slots;
    const number = numberOf(lookupId);
    const first = this.#bucketOf(lookupId);
    let last = first;
    while (last < first + slotsPerBucket - 1 && places[last] !== number) last += 1;
    // Frees the first slot. Overwrites the old copy of this number or, in a full bucket, the oldest number.
    places.copyWithin(first + 1, first, last);
    places[first] = number;
  }

  #bucketOf(lookupId: string): number {
    return (parseInt(lookupId.slice(numberEnd, bucketEnd), 16) & this.#bucketMask) * slotsPerBucket;
  }
}

/**
 * Returns the part of a lookup id (a key's hash in hex) that a slot stores: its first 32 bits. Never returns 0, because
 * 0 marks an empty slot.
 */
function numberOf(lookupId: string): number {
  return parseInt(lookupId.slice(0, numberEnd), 16) || 1;
}
