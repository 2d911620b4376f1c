/** Number of slots in a bucket of the hash table. A slot takes four bytes. */
const slotsPerBucket = 8;
const minSlots = 65_536;
const maxSlots = 4_194_304;
const slotsPerEntry = 8;
/**
 * A lookup id is a key's hash in hex. A slot stores digits 0 to 7 of the id, and digits 8 to 15 select the bucket. The
 * two constants are the offsets at which these parts of the id end.
 */
const [numberEnd, bucketEnd] = [8, 16];

/**
 * A compact set of API keys that exist. The gateway does not count a lookup of these keys as an attempt to guess a key,
 * even after the record cache has evicted their records. The set stores 32 bits of each key's hash, and a full bucket
 * evicts its oldest entry. About one unknown key in 500,000,000 is mistaken for a known key. The mistake costs only one
 * lookup in the store.
 */
export class KnownKeys {
  readonly #slots: Uint32Array;
  readonly #bucketMask: number;

  /**
   * @param maxEntries maximum number of records in the record cache; the set has at least 8 slots for each record,
   * within the limits `minSlots` (256 KiB) and `maxSlots` (16 MiB)
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
    // A bucket has its newest number in the first slot. Move the numbers before slot `last` one slot further, to free
    // the first slot. This overwrites the old copy of this number or, in a full bucket, the oldest number.
    places.copyWithin(first + 1, first, last);
    places[first] = number;
  }

  #bucketOf(lookupId: string): number {
    return (parseInt(lookupId.slice(numberEnd, bucketEnd), 16) & this.#bucketMask) * slotsPerBucket;
  }
}

/** Returns the number that a slot stores: the first 32 bits of a lookup id. Never 0, because 0 marks an empty slot. */
function numberOf(lookupId: string): number {
  return parseInt(lookupId.slice(0, numberEnd), 16) || 1;
}
