import { randomUUID } from 'node:crypto';
import type { InjectOptions } from 'fastify';
import t, { type Test } from 'tap';
import { systemTimers } from '../../src/cli/compose/system-clock.js';
import { isPostgres, sqlTime } from '../../src/database/dialects.js';
import { sql } from '../../src/database/kysely.js';
import type { PoolOptions } from '../../src/database/postgres.js';
import type { AssertionVerifier, Tenant } from '../../src/services/assertion-verifier.js';
import { createServices } from '../../src/services/create-services.js';
import { FairConnectionShares } from '../../src/services/fair-connections.js';
import { advancePayouts } from '../../src/services/payouts/advance-payouts.js';
import { openServicesDatabase, ownerColumns, type ServicesDatabase } from '../../src/services/services-database.js';
import { createPostgresDatabase, postgresAlone } from '../database/each-database.js';

/** The part of a tap test that the fixture uses. */
interface Teardown {
  teardown(end: () => Promise<void>): void;
}

/** Options that override the defaults of the services under test. */
interface FixtureOptions {
  readonly url?: string;
  readonly pool?: PoolOptions;
  readonly assertions?: AssertionVerifier | null;
}

/** Services under test. */
export type ServicesUnderTest = Awaited<ReturnType<typeof servicesFixture>>;

/** Long timeouts: a machine that is busy with other tests must not look like an unavailable database. */
export const patient = { maxConnections: 4, connectTimeoutSeconds: 120, statementTimeoutSeconds: 120 };

let shared: Promise<string> | null = null;

/**
 * Runs a test of the services on SQLite and on PostgreSQL. The tests of a file share one PostgreSQL database, which is
 * emptied before each test.
 */
export function onEachServices(title: string, body: (t: Test, services: ServicesUnderTest) => Promise<void>): void {
  t.test(`${title} (SQLite)`, async (t) => {
    await body(t, await servicesFixture(t));
  });
  t.test(`${title} (PostgreSQL)`, postgresAlone, async (test) => {
    const services = await servicesFixture(test, { url: await (shared ??= createPostgresDatabase(t)) });
    await sql`truncate wallets, payouts, transactions, customers, deleted_customers, answers, operator_events restart identity`.execute(
      services.database,
    );
    await body(test, services);
  });
}

/** A response of the services with its parsed body. */
export interface ApiResponse {
  readonly status: number;
  readonly body: {
    readonly success: boolean;
    readonly message: string;
    readonly data: unknown;
    readonly meta?: Record<string, number>;
  };
}

/** Optional parts of a test request. */
export interface Details {
  readonly body?: unknown;
  readonly payload?: string | Buffer;
  readonly headers?: Record<string, string>;
  readonly from?: string;
}

export const merchantA: Tenant = { merchantId: 'merchant_a', environment: 'live' };
export const merchantB: Tenant = { merchantId: 'merchant_b', environment: 'live' };
export const sandboxOfA: Tenant = { merchantId: 'merchant_a', environment: 'test' };
export const startOfTest = Date.UTC(2026, 0, 15, 12);

/**
 * Services on a database. The simulated bank takes a minute for a payout, by a clock that advances by one second per
 * reading.
 */
export async function servicesFixture(
  test: Teardown,
  { url = 'sqlite::memory:', pool = patient, assertions = null }: FixtureOptions = {},
) {
  const database = await openServicesDatabase({ url, pool });
  const logged: { details: object; message: string }[] = [];
  let time = startOfTest;
  const now = () => (time += 1000);
  const clock = { now: () => sqlTime(now()) };
  const logger = { error: (details: object, message: string) => void logged.push({ details, message }) };
  const bank = { delayMilliseconds: 60_000, failingAccounts: ['0000000000', '+2340000000000'] };
  const connections = isPostgres(database) ? new FairConnectionShares({ pool, timers: systemTimers }) : null;
  const { app, openApi } = createServices({ database, assertions, connections, clock, bank, logger });
  test.teardown(async () => {
    await app.close();
    await database.destroy();
  });

  async function call(
    tenant: Tenant | null,
    method: NonNullable<InjectOptions['method']>,
    url: string,
    { body, payload, headers, from = '127.0.0.1' }: Details = {},
  ): Promise<ApiResponse> {
    const sent = body === undefined ? payload : JSON.stringify(body);
    const response = await app.inject({
      method,
      url,
      remoteAddress: from,
      headers: {
        ...(tenant === null ? {} : identityOf(tenant)),
        ...(sent === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(sent === undefined ? {} : { payload: sent }),
    });
    return { status: response.statusCode, body: response.json() };
  }

  /** Advances the clock and runs the payout worker until nothing is due. */
  async function pass(milliseconds: number): Promise<void> {
    time += milliseconds;
    while (await advancePayouts({ database, clock, bank, logger }));
  }

  return { app, bank, call, clock, database, logged, now, openApi, pass };
}

/** The headers with which the gateway identifies a merchant. */
export function identityOf({ merchantId, environment }: Tenant): Record<string, string> {
  return { 'x-merchant-id': merchantId, 'x-merchant-environment': environment };
}

/** Inserts a wallet and the credit that funded it. Returns the id of the wallet. */
export async function addWallet(
  database: ServicesDatabase,
  tenant: Tenant,
  { balance = 0, currency = 'NGN', isDefault = false } = {},
): Promise<string> {
  const id = randomUUID();
  const owner = { ...ownerColumns(tenant), created_at: startOfTest };
  await database
    .insertInto('wallets')
    .values({ ...owner, id, currency, balance, is_default: isDefault ? 1 : 0 })
    .execute();
  if (balance > 0) {
    await database
      .insertInto('transactions')
      .values({
        ...owner,
        wallet_id: id,
        payout_id: null,
        counter_account: 'float',
        type: 'credit',
        status: 'successful',
        amount: balance,
        currency,
        reference: randomUUID(),
        balance_after: balance,
      })
      .execute();
  }
  return id;
}

/** The body of a payout to a bank account. */
export function bankPayout(walletId: string, changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    walletId,
    destinationBankCode: '058',
    destinationAccountNumber: '0123456789',
    destinationAccountName: 'Amina Okafor',
    amount: 100,
    remarks: 'Invoice 42',
    ...changes,
  };
}

/** The balance of a wallet according to the ledger's entries. */
export async function ledgerSum(database: ServicesDatabase, walletId: string): Promise<number> {
  const rows = await database
    .selectFrom('transactions')
    .select(['type', 'amount'])
    .where('wallet_id', '=', walletId)
    .execute();
  return rows.reduce((sum, { type, amount }) => sum + (type === 'credit' ? amount : -amount), 0);
}

/** The stored balance of a wallet. */
export async function balanceOf(database: ServicesDatabase, walletId: string): Promise<number> {
  const row = await database
    .selectFrom('wallets')
    .select('balance')
    .where('id', '=', walletId)
    .executeTakeFirstOrThrow();
  return row.balance;
}
