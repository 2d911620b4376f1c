const ofOne = (): number => 1;

/**
 * The options of an LRU map of at most so many entries that takes memory as it fills. With `max`, lru-cache takes it all
 * when it is made: 3 MB for 100,000 entries, which most gateways never have.
 */
export function growingTo(maxEntries: number): { readonly maxSize: number; readonly sizeCalculation: () => number } {
  return { maxSize: maxEntries, sizeCalculation: ofOne };
}
