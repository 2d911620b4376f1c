import type { Problem } from '../../rest/envelope.js';
import { parseDateTime } from '../../rest/moment.js';

const milliseconds: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/**
 * The latest possible expiry, in milliseconds since 1970: the end of the year 9999, which many systems use for "never".
 * Later dates have no four-digit year.
 */
export const latestExpiry = Date.UTC(10_000, 0, 1) - 1;

/**
 * The requested expiry of a new key, as a time (`expiresAt`) or as a lifetime (`expiresIn`). If neither is given, a
 * created key never expires, and a key from a reset gets the expiry of the old key.
 */
export interface Expiry {
  readonly expiresAt?: string;
  readonly expiresIn?: string;
}

/**
 * Parses the requested expiry of a key.
 * @returns the expiry in milliseconds since 1970; null if the request has no expiry; or the problem with the request
 */
export function expiryIn({ expiresAt, expiresIn }: Expiry, now: number): number | null | Problem {
  if (expiresAt !== undefined && expiresIn !== undefined) {
    return { path: 'expiresIn', message: 'expiresIn and expiresAt cannot both be given' };
  }
  if (expiresAt !== undefined) {
    const moment = parseDateTime(expiresAt);
    if (moment !== null && moment > now && moment <= latestExpiry) return moment;
    return {
      path: 'expiresAt',
      message: `expiresAt must be a date and time ${moment === null ? 'that exists' : 'in the future, before the year 10000'}`,
    };
  }
  if (expiresIn === undefined) return null;
  const moment = now + Number(expiresIn.slice(0, -1)) * (milliseconds[expiresIn.slice(-1)] ?? NaN);
  if (moment <= latestExpiry) return moment;
  return { path: 'expiresIn', message: 'expiresIn is too long: the key must expire before the year 10000' };
}
