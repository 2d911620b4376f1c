import { isDeepStrictEqual } from 'node:util';
import type { Difference } from '../ports.js';

/**
 * Why a record was repaired:
 * - `missing`: it was evicted or deleted;
 * - `unknown`: the database does not know its name;
 * - `older`: it names a former revision;
 * - `layout`: it says the same in another text, as that of another release may;
 * - `forged`: anything else.
 */
export const repairCauses = ['missing', 'unknown', 'older', 'layout', 'forged'] as const;

/** One of them. */
export type RepairCause = (typeof repairCauses)[number];

/** Why a record that is stored otherwise is repaired. */
export function causeOf({ isStored, stored, value }: Difference): RepairCause {
  if (!isStored) return 'missing';
  if (value === null) return 'unknown';
  if (stored !== null && saysAll(stored, value)) return 'layout';
  return isOlder(stored, value) ? 'older' : 'forged';
}

/** Whether somebody has written a record who may not: eviction, deletion and another release of the registry are no forgery. */
export function isForgery(cause: RepairCause): boolean {
  return cause !== 'missing' && cause !== 'layout';
}

/**
 * Whether a record may be as it is because its newest change is yet to be projected.
 * @param value what it should be, by the database, where that change is waiting
 */
export function mayBeWaiting({ isStored, stored, value }: Difference): boolean {
  return !isStored || value === null || isOlder(stored, value);
}

function saysAll(stored: object, value: object): boolean {
  const held = stored as Record<string, unknown>;
  return Object.entries(value).every(([name, member]) => isDeepStrictEqual(held[name], member));
}

function isOlder(stored: object | null, value: object): boolean {
  const [held, own] = [revisionOf(stored), revisionOf(value)];
  return held !== null && own !== null && held < own;
}

function revisionOf(record: object | null): number | null {
  const { revision = null } = (record ?? {}) as { revision?: unknown };
  return typeof revision === 'number' && Number.isSafeInteger(revision) ? revision : null;
}
