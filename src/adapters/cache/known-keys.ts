/** Slots of a bucket, of four bytes each. */
const slotsPerBucket = 8;
const minSlots = 65_536;
const maxSlots = 4_194_304;
const slotsPerEntry = 8;
/** Where the stored number and the bucket number end in a lookup id, in hex digits. */
const [numberEnd, bucketEnd] = [8, 16];

/**
 * Remembers which keys exist, including keys that do not fit into the record cache, so that their lookups do not count
 * as guesses. It holds 32 bits of each key's hash; a full bucket evicts the key noted longest ago. It takes about one
 * unknown key in 500,000,000 for a known one, which costs a lookup.
 */
export class KnownKeys {
  readonly #slots: Uint32Array;
  readonly #bucketMask: number;

  /** @param maxEntries size of the record cache; this set holds several times as many keys, in 256 KiB to 16 MiB */
  constructor(maxEntries: number) {
    let places = minSlots;
    while (places < maxEntries * slotsPerEntry && places < maxSlots) places *= 2;
    this.#slots = new Uint32Array(places);
    this.#bucketMask = places / slotsPerBucket - 1;
  }

  /** @param lookupIds 64 hex digits each */
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
    places.copyWithin(first + 1, first, last); // evicts the key noted longest ago
    places[first] = number;
  }

  #bucketOf(lookupId: string): number {
    return (parseInt(lookupId.slice(numberEnd, bucketEnd), 16) & this.#bucketMask) * slotsPerBucket;
  }
}

/** Never 0, which marks an empty slot. */
function numberOf(lookupId: string): number {
  return parseInt(lookupId.slice(0, numberEnd), 16) || 1;
}
