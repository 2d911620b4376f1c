import { randomUUID } from 'node:crypto';
import type { Test } from 'tap';
import { BalanceCheck } from '../../src/services/ledger/balance-check.js';
import { createOperatorsApi } from '../../src/services/operators/create-operators-api.js';
import type { Entry } from '../../src/services/operators/schema.js';
import type { Answer, ServicesUnderTest } from './services-fixture.js';

export const operatorsToken = 'a-token-of-operators-0123456789abcdef';

/** Creates the operators' API on the database of the services under test. */
export function operatorsOf(t: Test, { database, clock, logged }: ServicesUnderTest) {
  const logger = { error: (details: object, message: string) => void logged.push({ details, message }) };
  const app = createOperatorsApi({ database, clock, token: operatorsToken, tls: null, logger });
  t.teardown(() => app.close());

  async function operate(
    method: 'GET' | 'POST',
    url: string,
    body?: object,
    headers: Record<string, string> = {},
  ): Promise<Answer> {
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
    const { body: answer } = await operate('POST', '/wallets', body);
    return (answer.data as { id: string }).id;
  }

  async function move(kind: 'fund' | 'withdraw', walletId: string, amount: number, more: object = {}) {
    const order = { amount, currency: 'NGN', environment: 'live', reference: randomUUID(), reason: 'A test', ...more };
    const { status, body } = await operate('POST', `/wallets/${walletId}/${kind}`, order);
    return { status, body, code: (body.data as { code?: string } | null)?.code, data: body.data as Entry };
  }

  /** Runs the balance check once and returns its result. */
  async function check() {
    const ledger = new BalanceCheck({ database, now: () => 0, logger });
    await ledger.check();
    return { ...ledger.state, warnings: ledger.warnings };
  }

  return { app, operate, open, move, check };
}

export const agreed = { mismatchedWallets: 0, unbalancedCurrencies: 0, checkedAt: 0, warnings: [] };
