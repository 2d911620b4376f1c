import { sql } from '../../database/kysely.js';
import { dayMilliseconds, hourMilliseconds } from '../../usage/batch.js';
import type { RegistryDatabase } from '../registry-database.js';
import { sumOf } from './read-hours.js';

/**
 * How many active, unexpired keys a merchant has, and how many requests it sent in about the last 24 hours (see
 * `countsOf`). `requests` includes the refused requests.
 */
export interface MerchantCounts {
  readonly keys: number;
  readonly requests: number;
  readonly refused: number;
}

/**
 * Counts the keys and requests of these merchants. The returned function takes a merchant's id and returns its counts.
 * Requests are stored by hour, so the counted period begins on the hour, between 24 and 25 hours ago.
 */
export async function countsOf(
  database: RegistryDatabase,
  ids: readonly string[],
  now: number,
): Promise<(id: string) => MerchantCounts> {
  if (ids.length === 0) return () => ({ keys: 0, requests: 0, refused: 0 });
  const since = Math.floor((now - dayMilliseconds) / hourMilliseconds) * hourMilliseconds;
  const keys = await database
    .selectFrom('api_keys')
    .select(['merchant_id', (it) => it.fn.countAll<number>().as('keys')])
    .where('merchant_id', 'in', ids)
    .where('status', '=', 'ACTIVE')
    .where((it) => it.or([it('expires_at', 'is', null), it('expires_at', '>', now)]))
    .groupBy('merchant_id')
    .execute();
  const usage = await database
    .selectFrom('usage_hours')
    .select(['merchant_id', sumOf('count').as('requests')])
    .select(sql<number>`cast(sum(case when code = 'accepted' then 0 else count end) as bigint)`.as('refused'))
    .where('merchant_id', 'in', ids)
    .where('hour', '>=', since)
    .groupBy('merchant_id')
    .execute();
  const keysOf = new Map(keys.map((row) => [row.merchant_id, row.keys]));
  const usageOf = new Map(usage.map((row) => [row.merchant_id, row]));
  return (id) => {
    const { requests = 0, refused = 0 } = usageOf.get(id) ?? {};
    return { keys: keysOf.get(id) ?? 0, requests, refused };
  };
}
