import { setTimeout as wait } from 'node:timers/promises';
import Libsql from 'libsql';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import type { Site } from '../deployment/deployment.js';
import { benchKey } from './key-file.js';

const keysOfMerchant = 100;
/** Rows per transaction: small enough for the registry to write in between. */
const rowsAtOnce = 20_000;
const fillMinutes = 10;

/**
 * Inserts keys and their merchants into the registry's SQLite file, because an import would take minutes. Waits until
 * Redis has them.
 */
export async function seedKeys(deployment: Site, keys: number): Promise<void> {
  const { databaseFile, redis } = deployment;
  const database = new Libsql(databaseFile, { timeout: 5000 });
  const [now, merchants] = [Date.now(), Math.ceil(keys / keysOfMerchant)];
  const stamps = [1, 1, now, now];
  await insert(database, 'merchants', merchants, (number) => {
    return [`m_${number}`, `Merchant ${number}`, 'ACTIVE', 1, null, null, ...stamps];
  });
  await insert(database, 'api_keys', keys, (number) => {
    const lookupId = lookupIdOf(benchKey(number), null);
    const merchantId = `m_${number % merchants}`;
    return [benchKeyId(number), merchantId, lookupId, 'live', 'ACTIVE', '["*"]', null, null, ...stamps];
  });
  database.close();
  await redis.client.flushall();
  const deadline = performance.now() + fillMinutes * 60_000;
  while (!(await isFilled(deployment))) {
    if (performance.now() > deadline) throw new Error('Redis was not filled');
    await wait(50);
  }
}

/** Whether the registry has written every record to Redis. */
export async function isFilled({ redis }: Site): Promise<boolean> {
  return (await redis.client.get('mg:meta'))?.includes('"version":1') === true;
}

/** The id of the key of this number. */
export function benchKeyId(number: number): string {
  return `key_benchmark${number}`;
}

const columns = {
  merchants: 'id, name, status, go_live, ip_allowlist, origin_allowlist',
  api_keys: 'key_id, merchant_id, lookup_id, environment, status, permissions, label, expires_at',
};
const stampColumns = 'created_revision, revision, created_at, updated_at';

async function insert(
  database: Libsql.Database,
  table: keyof typeof columns,
  count: number,
  rowOf: (number: number) => readonly (string | number | null)[],
): Promise<void> {
  const names = `${columns[table]}, ${stampColumns}`;
  const marks = names.split(',').fill('?').join();
  const statement = database.prepare(`insert into ${table} (${names}) values (${marks})`);
  for (let start = 0; start < count; start += rowsAtOnce) {
    const rows = Array.from({ length: Math.min(rowsAtOnce, count - start) }, (_, index) => rowOf(start + index));
    database.transaction(() => {
      for (const row of rows) statement.run(row);
    })();
    await wait(20);
  }
}
