import type { Test } from 'tap';
import { openRegistryDatabase, type RegistryDatabase } from '../../src/registry/registry-database.js';
import { UsageBatches, type UsageOptions } from '../../src/registry/usage/usage-batches.js';
import {
  type AddressCount,
  type CodeCount,
  type KeyUsage,
  type MerchantUsage,
  type RefusalDetail,
  type UsageBatch,
} from '../../src/usage/batch.js';
import { batchText } from '../usage/batch-text.js';
import { ManualTime } from './manual-time.js';

/** 2026-01-15, the day on which the clock of the tests begins. */
export const day = Date.UTC(2026, 0, 15);
export const hour = day + 11 * 3_600_000;

/** Requests with one result. */
export function codeCount(code: string, count: number, more: Partial<CodeCount> = {}): CodeCount {
  const totals = {
    totalMilliseconds: 2 * count,
    slowestMilliseconds: 3,
    requestBytes: count,
    responseBytes: 2 * count,
  };
  return { hour, code, count, ...totals, ...more };
}

/** Requests from one address; null stands for all addresses beyond the gateway's limit. */
export function addressCount(address: string | null, accepted: number, more: Partial<AddressCount> = {}): AddressCount {
  const times = { firstAt: hour, lastAt: hour + 1_000 };
  return { day, address, country: null, asNumber: null, accepted, refused: 0, ...times, ...more };
}

/** Usage of one key of the merchant m_1. */
export function keyUsage(keyId: string | null, more: Partial<KeyUsage> = {}): KeyUsage {
  const named = { keyId, merchantId: keyId === null ? null : 'm_1', lookupId: null };
  return { ...named, codes: [], lastUse: null, addresses: [], agents: [], ...more };
}

/** A refused request. */
export function refusal(requestId: string, more: Partial<RefusalDetail> = {}): RefusalDetail {
  const request = { method: 'GET', path: '/v1/payouts', address: '192.0.2.9', keyId: 'key_1', header: null, requestId };
  return { at: hour, code: 'ip_not_allowed', status: 401, ...request, ...more };
}

/** Usage of one merchant. */
export function merchantUsage(merchantId: string, more: Partial<MerchantUsage> = {}): MerchantUsage {
  return { merchantId, hosts: [], refusals: [], ...more };
}

/** A batch of the process `p-1`. */
export function usageBatch(more: Partial<UsageBatch> = {}): UsageBatch {
  const { sequence = 1 } = more;
  return {
    ...{ version: 1, process: 'p-1', instance: 'gateway-1:17', environment: 'live', sequence },
    ...{ acknowledged: sequence - 1, from: hour, to: hour + 1_000, isLast: false, dropped: { refusals: 0 } },
    ...{ keys: [], merchants: [], unknown: { codes: [], addresses: [] } },
    ...more,
  };
}

/** The part of a registry that adds batches to a database, and its log. */
export async function usageFixture(t: Test, url: string, more: Partial<UsageOptions> = {}) {
  const time = new ManualTime();
  const database = await openRegistryDatabase({ url, generation: 'g' });
  t.teardown(() => database.destroy());
  const logged: object[] = [];
  const log = (details: object): void => void logged.push(details);
  const logger = { error: log, warn: log, info: log };
  const options: UsageOptions = { database, clock: time, addresses: 'full', logger, ...more };
  const batches = new UsageBatches(options);
  return {
    ...{ database, time, logged, batches },
    /** Another registry on the same database. */
    another: () => new UsageBatches(options),
    add: async (batch: Partial<UsageBatch>): Promise<unknown> =>
      JSON.parse(await batches.add(await batchText(usageBatch(batch)))) as unknown,
  };
}

/** The counts of all hours by key and code, such as `{ 'key_1 accepted': 5 }`. */
export async function countsOf(database: RegistryDatabase): Promise<Record<string, number>> {
  const rows = await database
    .selectFrom('usage_hours')
    .select(['key_id', 'code', (it) => it.cast<number>(it.fn.sum('count'), 'bigint').as('count')])
    .groupBy(['key_id', 'code'])
    .orderBy('key_id')
    .orderBy('code')
    .execute();
  return Object.fromEntries(rows.map(({ key_id, code, count }) => [`${key_id} ${code}`, count]));
}
