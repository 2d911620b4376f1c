import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { lookupIdOf } from '../../src/gateway/api-key.js';

/** The API key of this number. A deployment knows it if it was filled with more than `number` keys. */
export function benchKey(number: number): string {
  return `svc_live_benchmark${number}`;
}

/**
 * Writes an import file: first merchants, then `keys` keys. The key with the number n belongs to the merchant with the
 * number n modulo the number of merchants.
 */
export async function writeKeyFile(file: string, keys: number): Promise<void> {
  const merchants = Math.min(Math.ceil(keys / 100), 10_000);
  const out = createWriteStream(file);
  let lines: string[] = [];
  const flush = async (): Promise<void> => {
    if (!out.write(lines.join(''))) await once(out, 'drain');
    lines = [];
  };
  const add = async (entry: object): Promise<void> => {
    if (lines.push(`${JSON.stringify(entry)}\n`) >= 1000) await flush();
  };
  for (let number = 0; number < merchants; number += 1) {
    await add({
      ...{ type: 'merchant', merchantId: `m_${number}`, name: `Merchant ${number}`, status: 'ACTIVE', goLive: true },
      ...{ ipAllowlist: null, originAllowlist: null },
    });
  }
  for (let number = 0; number < keys; number += 1) {
    await add({
      ...{ type: 'key', lookupId: lookupIdOf(benchKey(number), null), merchantId: `m_${number % merchants}` },
      ...{ environment: 'live', status: 'ACTIVE', permissions: ['*'], expiresAt: null, label: null },
    });
  }
  await flush();
  out.end();
  await once(out, 'close');
}
