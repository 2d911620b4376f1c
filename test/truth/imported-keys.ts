import http from 'node:http';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { call } from './call.js';
import type { Deployment } from './deployment.js';
import type { TestKey } from './keys.js';
import type { History } from './recorder.js';

const entriesAtOnce = 500;
const keysOfMerchant = 100;
const timeoutMilliseconds = 60_000;

/**
 * Imports merchants with active keys. No later change affects them.
 * @param first the number of the first key; the names of keys and merchants contain the number
 * @returns at most `mostAsked` of the keys, for requests
 */
export async function importKeys(
  { registries, token }: Deployment,
  history: History,
  count: number,
  mostAsked = 300,
  first = 0,
): Promise<TestKey[]> {
  const numbers = Array.from({ length: count }, (_, index) => first + index);
  const keys = numbers.map((number) => ({
    keyId: `key_imported_${number}`,
    merchantId: `m_imported_${Math.floor(number / keysOfMerchant)}`,
    key: `svc_live_imported${number}`,
  }));
  const merchantIds = [...new Set(keys.map(({ merchantId }) => merchantId))];
  const entries = [...merchantIds.map(merchantEntry), ...keys.map(keyEntry)];
  const begun = performance.now();
  const agent = new http.Agent({ keepAlive: true });
  const headers = { authorization: `Bearer ${token}` };
  const to = { port: registries[0]?.port ?? 0, method: 'POST', path: '/imports', headers, agent, timeoutMilliseconds };
  const post = async (batch: readonly object[]): Promise<boolean> => {
    const { status } = await call({ ...to, body: { entries: batch } });
    if (status !== 200 && status !== 202) throw new Error(`an import was answered with ${String(status)}`);
    return status === 200;
  };
  let isProjected = true;
  for (let start = 0; start < entries.length; start += entriesAtOnce)
    isProjected = await post(entries.slice(start, start + entriesAtOnce));
  // Imports further merchants until one of them is in Redis: then all earlier changes are there too.
  for (let extra = 0; !isProjected; extra += 1)
    isProjected = await post([merchantEntry(`m_imported_later_${first + extra}`)]);
  agent.destroy();
  const every = Math.ceil(count / mostAsked);
  const asked = keys.filter((_, number) => number % every === 0);
  // No gateway has older records of these keys, so they are in force once they are in the store.
  history.add({
    ...{ kind: 'change', party: registries[0]?.name ?? '', action: `import ${count} keys`, begun },
    ...{ ended: performance.now(), status: 200, propagation: { gateways: 0, confirmed: 0, pending: [] } },
    writes: [
      ...asked.map(({ keyId }) => ({ register: `key:${keyId}`, value: 'active' })),
      ...merchantIds.flatMap((id) => [
        { register: `status:${id}`, value: 'ACTIVE' },
        { register: `allowlist:${id}`, value: 'open' },
      ]),
    ],
  });
  return asked;
}

function merchantEntry(merchantId: string): object {
  const allowlists = { ipAllowlist: null, originAllowlist: null };
  return { type: 'merchant', merchantId, name: 'Imported', status: 'ACTIVE', goLive: true, ...allowlists };
}

function keyEntry({ keyId, merchantId, key }: TestKey): object {
  const lookupId = lookupIdOf(key, null);
  return { type: 'key', keyId, lookupId, merchantId, environment: 'live', status: 'ACTIVE', permissions: ['*'] };
}
