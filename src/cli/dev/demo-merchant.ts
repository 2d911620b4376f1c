import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import https from 'node:https';
import { OperatorError } from '../../config/operator-error.js';
import type { Environment } from '../../policy/key-format.js';
import Type from '../../typebox/typebox.js';
import type { AdminClient } from '../admin/admin-client.js';

/** The demo merchant, and its API key if this start of `dev` created the key. */
interface DemoMerchant {
  readonly merchantId: string;
  /** The API key; null if an earlier start of `dev` created and showed it. */
  readonly key: string | null;
}

const name = 'Demo Merchant';
const merchant = Type.Object({ id: Type.String(), name: Type.String() });
const storedKey = Type.Object({ keyId: Type.String(), environment: Type.String(), status: Type.String() });
const shownKey = Type.Object({ key: Type.String() });

/**
 * Finds the demo merchant and its key through the admin API, and creates them if they are missing.
 * @param resetKey whether to replace an existing key by a new one
 */
export async function ensureDemoMerchant(
  registry: AdminClient,
  environment: Environment,
  resetKey: boolean,
): Promise<DemoMerchant> {
  const query = { name };
  const found = await registry.ask({ method: 'GET', path: ['merchants'], query, expects: Type.Array(merchant) });
  const existing = found.data.find((one) => one.name === name);
  const merchantId = existing?.id ?? (await createMerchant(registry));

  const path = ['merchants', merchantId, 'keys'];
  const { data: keys } = await registry.ask({ method: 'GET', path, expects: Type.Array(storedKey) });
  const key = keys.find((one) => one.environment === environment && one.status === 'ACTIVE');
  if (key !== undefined && !resetKey) return { merchantId, key: null };
  const made =
    key === undefined
      ? await registry.ask({ method: 'POST', path, body: { environment }, expects: shownKey })
      : await registry.ask({ method: 'POST', path: ['keys', key.keyId, 'reset'], body: {}, expects: shownKey });
  return { merchantId, key: made.data.key };
}

async function createMerchant(registry: AdminClient): Promise<string> {
  const body = { name, status: 'ACTIVE', goLive: true };
  const { data } = await registry.ask({ method: 'POST', path: ['merchants'], body, expects: merchant });
  if (data.name !== name) throw new OperatorError('The registry created the demo merchant under a different name.');
  return data.id;
}

const paths = ['/payouts', '/transactions', '/payouts?per_page=5', '/transactions', '/payouts', '/transactions'];

/**
 * Sends requests with the demo key and with a revoked key, so that the console and the commands `usage` and `refusals`
 * have data to show. If the requests fail, the demo starts without this data.
 */
export async function sendDemoRequests(
  registry: AdminClient,
  {
    merchantId,
    environment,
    key,
  }: { readonly merchantId: string; readonly environment: Environment; readonly key: string },
  { baseUrl, certFile }: { readonly baseUrl: string; readonly certFile: string },
): Promise<void> {
  const path = ['merchants', merchantId, 'keys'];
  const body = { environment, label: 'old till' };
  const expects = Type.Object({ ...shownKey.properties, keyId: Type.String() });
  const { data: old } = await registry.ask({ method: 'POST', path, body, expects });
  await registry.ask({ method: 'POST', path: ['keys', old.keyId, 'revoke'], expects: storedKey });
  const ca = await readFile(certFile);
  const send = async (at: string, apiKey: string): Promise<void> => {
    // Skip the check of the host name. The configured certificate can name any host, and the connection stays on this
    // machine.
    const options = { ca, checkServerIdentity: () => undefined, agent: false, headers: { 'x-api-key': apiKey } };
    const request = https.get(`${baseUrl}${at}`, { ...options, timeout: 1_000 });
    request.on('timeout', () => request.destroy(new Error('the gateway does not respond')));
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    await once(response.resume(), 'end');
  };
  try {
    for (const at of paths) await send(at, key);
    for (const at of paths.slice(0, 2)) await send(at, old.key);
  } catch {
    return;
  }
}
