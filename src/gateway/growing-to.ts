const ofOne = (): number => 1;

/**
 * Options of an LRU cache with a maximum number of entries that allocates memory only as it grows. With the option
 * `max`, lru-cache allocates it all at once: 3 MB for 100,000 entries, which most gateways never have.
 */
export function lruOptions(maxEntries: number): { readonly maxSize: number; readonly sizeCalculation: () => number } {
  return { maxSize: maxEntries, sizeCalculation: ofOne };
}
