/** Four bytes for each of eight places in a bucket. */
const placesPerBucket = 8;
const fewestPlaces = 65_536;
const mostPlaces = 4_194_304;
const placesPerEntry = 8;
/** Where the numbers in a look-up id begin and end, in hex digits. */
const [numberEnd, bucketEnd] = [8, 16];

/**
 * Remembers that keys exist, so that a look-up for one is no guess: also of keys that do not fit into the memory for records. Holds 32
 * bits of the hash of each, and of many keys those that were noted last. It may take one unknown key in 500,000,000 for a known one,
 * which costs a look-up.
 */
export class KnownKeys {
  readonly #places: Uint32Array;
  readonly #bucketMask: number;

  /** @param maxEntries how many records are held; it remembers some times as many keys, in 256 KiB to 16 MiB */
  constructor(maxEntries: number) {
    let places = fewestPlaces;
    while (places < maxEntries * placesPerEntry && places < mostPlaces) places *= 2;
    this.#places = new Uint32Array(places);
    this.#bucketMask = places / placesPerBucket - 1;
  }

  /** @param lookupIds 64 hex digits each */
  note(lookupIds: readonly string[]): void {
    for (const id of lookupIds) this.#noteOne(id);
  }
  has(lookupId: string): boolean {
    const number = numberOf(lookupId);
    const first = this.#bucketOf(lookupId);
    for (let place = first; place < first + placesPerBucket; place += 1)
      if (this.#places[place] === number) return true;
    return false;
  }

  #noteOne(lookupId: string): void {
    const places = this.#places;
    const number = numberOf(lookupId);
    const first = this.#bucketOf(lookupId);
    let last = first;
    while (last < first + placesPerBucket - 1 && places[last] !== number) last += 1;
    places.copyWithin(first + 1, first, last); // the one noted longest ago makes room
    places[first] = number;
  }

  #bucketOf(lookupId: string): number {
    return (parseInt(lookupId.slice(numberEnd, bucketEnd), 16) & this.#bucketMask) * placesPerBucket;
  }
}

/** Not 0, which an empty place has. */
function numberOf(lookupId: string): number {
  return parseInt(lookupId.slice(0, numberEnd), 16) || 1;
}
