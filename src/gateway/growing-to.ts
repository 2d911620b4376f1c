const ofOne = (): number => 1;

/**
 * Options of an LRU cache that has a maximum number of entries, and allocates memory only when it grows. With the
 * option `max`, lru-cache allocates all memory at the start: 3 MB for 100,000 entries, a number that most gateways
 * never reach.
 */
export function lruOptions(maxEntries: number): { readonly maxSize: number; readonly sizeCalculation: () => number } {
  return { maxSize: maxEntries, sizeCalculation: ofOne };
}
