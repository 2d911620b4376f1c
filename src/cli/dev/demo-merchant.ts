import { OperatorError } from '../../config/operator-error.js';
import type { Environment } from '../../policy/key-format.js';
import Type from '../../typebox/typebox.js';
import type { AdminClient } from '../admin/admin-client.js';

/** The demo merchant, and its key, where it was made just now. */
export interface DemoMerchant {
  readonly merchantId: string;
  /** Null where the key was shown in an earlier run. */
  readonly key: string | null;
}

const name = 'Demo Merchant';
const merchant = Type.Object({ id: Type.String(), name: Type.String() });
const storedKey = Type.Object({ keyId: Type.String(), environment: Type.String(), status: Type.String() });
const shownKey = Type.Object({ key: Type.String() });

/** Makes the merchant that `dev` begins with, through the admin API as anybody would; finds it where it is there. */
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
  if (data.name !== name) throw new OperatorError('The registry made another merchant than the demo.');
  return data.id;
}
