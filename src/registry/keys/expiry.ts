import type { Problem } from '../../rest/envelope.js';
import { momentIn } from '../../rest/moment.js';

const milliseconds: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** The last moment of the year 9999, which many systems write for "never": no later one has a date of four digits. */
export const latestExpiry = Date.UTC(10_000, 0, 1) - 1;

/** When a new key shall end; null: never. */
export interface Expiry {
  readonly expiresAt?: string;
  readonly expiresIn?: string;
}

/** Reads when a key shall end, in milliseconds since 1970; null where nothing is said, or the problem with it. */
export function expiryIn({ expiresAt, expiresIn }: Expiry, now: number): number | null | Problem {
  if (expiresAt !== undefined && expiresIn !== undefined) {
    return { path: 'expiresIn', message: 'expiresIn and expiresAt cannot both be given' };
  }
  if (expiresAt !== undefined) {
    const moment = momentIn(expiresAt);
    if (moment !== null && moment > now && moment <= latestExpiry) return moment;
    return {
      path: 'expiresAt',
      message: `expiresAt must be a date and time ${moment === null ? 'that there is' : 'to come, before the year 10000'}`,
    };
  }
  if (expiresIn === undefined) return null;
  const moment = now + Number(expiresIn.slice(0, -1)) * (milliseconds[expiresIn.slice(-1)] ?? NaN);
  if (moment <= latestExpiry) return moment;
  return { path: 'expiresIn', message: 'expiresIn must end before the year 10000' };
}
