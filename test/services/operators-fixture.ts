import { createPublicKey, generateKeyPairSync, type KeyObject, randomUUID } from 'node:crypto';
import { calculateJwkThumbprint, createLocalJWKSet, exportJWK } from 'jose';
import type { Test } from 'tap';
import { BalanceCheck } from '../../src/services/ledger/balance-check.js';
import { createOperatorsApi, type OperatorsOptions } from '../../src/services/operators/create-operators-api.js';
import type { Entry } from '../../src/services/operators/schema.js';
import { createServicesTokenVerifier } from '../../src/services/operators/services-token-verifier.js';
import type { ApiResponse, ServicesUnderTest } from './services-fixture.js';

export const operatorsToken = 'a-token-of-operators-0123456789abcdef';

/** A key with which the registry signs the tokens for the services. */
export interface SigningKey {
  readonly privateKey: KeyObject;
  readonly keyId: string;
}

/** Creates a key for services tokens. */
export async function newServicesTokenKey(): Promise<SigningKey> {
  const { privateKey } = generateKeyPairSync('ed25519');
  return { privateKey, keyId: await calculateJwkThumbprint(await exportJWK(createPublicKey(privateKey))) };
}

/** Creates the verifier of tokens that one of these keys signed. */
export async function administratorsWith(keys: readonly SigningKey[], clock: { now(): number }) {
  const jwks = keys.map(async ({ privateKey, keyId }) => ({
    ...(await exportJWK(createPublicKey(privateKey))),
    ...{ kid: keyId, alg: 'EdDSA', use: 'sig' },
  }));
  return createServicesTokenVerifier({ keys: createLocalJWKSet({ keys: await Promise.all(jwks) }), clock });
}

/** Creates the operators' API on the database of the services under test. */
export function operatorsOf(
  t: Test,
  { database, clock, logged }: Pick<ServicesUnderTest, 'database' | 'clock' | 'logged'>,
  further: Partial<OperatorsOptions> = {},
) {
  const logger = { error: (details: object, message: string) => void logged.push({ details, message }) };
  const app = createOperatorsApi({
    database,
    clock,
    token: operatorsToken,
    storesEvents: false,
    attempts: null,
    tls: null,
    logger,
    ...further,
  });
  t.teardown(() => app.close());

  async function operate(
    method: 'GET' | 'POST',
    url: string,
    body?: object,
    headers: Record<string, string> = {},
  ): Promise<ApiResponse> {
    const response = await app.inject({
      method,
      url,
      headers: {
        authorization: `Bearer ${operatorsToken}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { payload: JSON.stringify(body) }),
    });
    return { status: response.statusCode, body: response.json() };
  }

  /** Creates a wallet of a merchant, by default in NGN; returns its id. */
  async function open(merchantId: string, more: object = {}): Promise<string> {
    const body = { merchantId, environment: 'live', currency: 'NGN', ...more };
    const { body: envelope } = await operate('POST', '/wallets', body);
    return (envelope.data as { id: string }).id;
  }

  async function move(kind: 'fund' | 'withdraw', walletId: string, amount: number, more: object = {}) {
    const order = { amount, currency: 'NGN', environment: 'live', reference: randomUUID(), reason: 'A test', ...more };
    const { status, body } = await operate('POST', `/wallets/${walletId}/${kind}`, order);
    return { status, body, code: (body.data as { code?: string } | null)?.code, data: body.data as Entry };
  }

  const ledger = new BalanceCheck({ database, now: () => 0, logger });
  /** Runs the balance check once and returns its result. */
  async function check() {
    await ledger.check();
    return { ...ledger.state, warnings: ledger.warnings };
  }

  return { app, operate, open, move, check };
}

export const agreed = { mismatchedWallets: 0, unbalancedCurrencies: 0, checkedAt: 0, warnings: [] };
