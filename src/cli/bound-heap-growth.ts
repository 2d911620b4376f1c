import { setFlagsFromString } from 'node:v8';

/** By how much of what lives garbage may make the heap larger before all of it is collected. */
const percent = 30;

/**
 * Has V8 collect old garbage before there is much of it. On a machine with much memory it would wait until the heap is
 * several times as large as what lives. A later V8 that does not know the flag goes on as it is.
 */
export function boundHeapGrowth(): void {
  setFlagsFromString(`--heap-growing-percent=${percent}`);
}
