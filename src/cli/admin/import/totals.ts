import { counted } from '../../../audit/finding.js';
import type { Counts } from '../../../registry/imports/schema.js';

/** How many records an import creates or would create, and how many already exist. */
export interface Totals {
  readonly created: Counts;
  readonly present: Counts;
}

/** Returns counts of zero. */
export function noCounts() {
  return { merchants: 0, keys: 0 };
}

/** Adds totals to the counts in `sum`, in place. */
export function addCounts(
  sum: { readonly created: { merchants: number; keys: number }; readonly present: { merchants: number; keys: number } },
  { created, present }: Totals,
): void {
  for (const kind of ['merchants', 'keys'] as const) {
    sum.created[kind] += created[kind];
    sum.present[kind] += present[kind];
  }
}

/** Formats counts as text, e.g. `2 merchants and 1 key`. */
export function countsText({ merchants, keys }: Counts): string {
  const parts = [merchants === 0 ? null : counted(merchants, 'merchant'), counted(keys, 'key')];
  return parts.filter((part) => part !== null).join(' and ');
}
