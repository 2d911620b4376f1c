const ofOne = (): number => 1;

/**
 * Options for an LRU cache with a maximum number of entries that allocates memory as it grows. With `max`, lru-cache
 * allocates everything at once: 3 MB for 100,000 entries, which most gateways never hold.
 */
export function lruOptions(maxEntries: number): { readonly maxSize: number; readonly sizeCalculation: () => number } {
  return { maxSize: maxEntries, sizeCalculation: ofOne };
}
