import type { Redis } from 'ioredis';
import { merchantOf, merchantsByLookupId, type Place } from '../compare/place.js';
import { clientAddresses, host } from '../compare/requests.js';

const atOnce = 1000;

/** About as many addresses as the Tor project lists, in a range without client addresses. */
export const torExits = Array.from(
  { length: 1300 },
  (_, index) => `185.220.${100 + Math.floor(index / 250)}.${index % 250}`,
);

/** Writes the keys and merchants to Redis in batches, as the registry would. */
export async function writeRecords(redis: Redis, place: Place): Promise<void> {
  let number = 0;
  let records: string[] = [];
  const flush = async (): Promise<void> => {
    if (records.length > 0) await redis.mset(records);
    records = [];
  };
  for (const [lookupId, merchantId] of merchantsByLookupId(place)) {
    records.push(`mg:key:${lookupId}`, JSON.stringify(keyRecord(number, 1)));
    if (number === 0 || merchantOf(number - 1) !== merchantId) {
      records.push(`mg:merchant:${merchantId}`, JSON.stringify(merchantRecord(merchantId)));
    }
    number += 1;
    if (number % atOnce === 0) await flush();
  }
  await flush();
  await redis.mset({
    'mg:meta': JSON.stringify({ version: 1, generation: '01BENCHMARK', projectedAt: '2026-01-01T00:00:00.000Z' }),
    'mg:revision': '1',
  });
}

/** The record of a valid key. */
export function keyRecord(number: number, revision: number): object {
  return {
    ...{ keyId: `key_${number}`, merchantId: merchantOf(number), environment: 'live', status: 'ACTIVE' },
    ...{ permissions: ['transactions:read', 'payouts:*'], expiresAt: null, revision },
  };
}

/** A merchant with both allowlists, so that requests run both checks. */
function merchantRecord(merchantId: string): object {
  return {
    ...{ merchantId, name: 'Benchmark', status: 'ACTIVE', goLive: true, revision: 1 },
    ipAllowlist: ['203.0.113.0/24', '2001:db8::/32', clientAddresses],
    originAllowlist: ['*.merchant.example', host],
  };
}
