import { randomUUID } from 'node:crypto';
import { ulid } from 'ulid';
import { addMilliseconds } from '../../database/dialects.js';
import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import type { Environment, Tenant } from '../assertion-verifier.js';
import { insufficientBalance } from '../failure-codes.js';
import { recordParams } from '../fields.js';
import { idempotencyKeyProblems } from '../idempotency/idempotency-key.js';
import { runIdempotent } from '../idempotency/run-idempotent.js';
import { tenantOf } from '../identity.js';
import { moveMoney } from '../ledger/move-money.js';
import { idIn, type RouteContext, type Routes } from '../routes.js';
import { lockListForInsert, type ServicesDatabase } from '../services-database.js';
import { findDefaultWallet, requireWallet } from '../wallets/repository.js';
import type { Wallet } from '../wallets/schema.js';
import { reserveReference } from './merchant-reference.js';
import { findPayout, insertPayout, listPayouts } from './repository.js';
import {
  bankPayoutBody,
  type Payout,
  type PayoutDestination,
  payoutSchema,
  payoutsQuery,
  recipientPayoutBody,
} from './schema.js';

const created = 'Payout created';

/** Adds the routes of payouts. */
export const payoutRoutes: Routes = (app, context) => {
  const { database } = context;

  app.post(
    '/dev/payouts',
    {
      schema: { body: bankPayoutBody, querystring: noQuery },
      config: {
        otherProblems: idempotencyKeyProblems,
        operation: {
          summary: 'Pay out to a bank account from a given wallet',
          status: 201,
          data: payoutSchema,
          message: created,
          codes: ['reference_taken', 'insufficient_balance'],
          failures: { 404: 'The wallet does not exist' },
        },
      },
    },
    (request, reply) =>
      runIdempotent(context, request, reply, async (transaction) => {
        const tenant = tenantOf(request);
        const { walletId, amount, reference, remarks, ...account } = request.body;
        const merchantReference = reference ?? null;
        await reserveReference(transaction, tenant, merchantReference);
        const wallet = await requireWallet(transaction, tenant, walletId.toLowerCase());
        const destination = { ...account, recipient: null, remarks: remarks ?? null };
        const order = { wallet, amount, merchantReference, destination };
        return success(created, await createPayout(transaction, context, tenant, order));
      }),
  );

  app.post(
    '/payouts',
    {
      schema: { body: recipientPayoutBody, querystring: noQuery },
      config: {
        otherProblems: idempotencyKeyProblems,
        operation: {
          summary: 'Pay out to a recipient from the default wallet of the currency',
          status: 201,
          data: payoutSchema,
          message: created,
          example: { ...noAccount, recipient: '+2348012345678' },
          codes: ['reference_taken', 'insufficient_balance', 'no_default_wallet'],
        },
      },
    },
    (request, reply) =>
      runIdempotent(context, request, reply, async (transaction) => {
        const tenant = tenantOf(request);
        const { amount, currency, recipient, reference } = request.body;
        const merchantReference = reference ?? null;
        await reserveReference(transaction, tenant, merchantReference);
        const wallet = await findDefaultWallet(transaction, tenant, currency);
        if (wallet === null) throw noDefaultWallet(currency, tenant.environment);
        const order = { wallet, amount, merchantReference, destination: { ...noAccount, recipient } };
        return success(created, await createPayout(transaction, context, tenant, order));
      }),
  );

  app.get(
    '/dev/payouts',
    {
      schema: { querystring: payoutsQuery },
      config: { operation: { summary: 'Payouts, newest first', message: 'Payouts retrieved', page: payoutSchema } },
    },
    async (request) => {
      const paging = pagingOf(request.query);
      const page = await listPayouts(database, tenantOf(request), request.query, paging);
      return successPage('Payouts retrieved', page, paging);
    },
  );

  app.get(
    '/dev/payouts/:id',
    {
      schema: { params: recordParams, querystring: noQuery },
      config: { operation: { summary: 'One payout', message: 'Payout retrieved', data: payoutSchema } },
    },
    async (request) => {
      const payout = await findPayout(database, tenantOf(request), idIn(request.params, 'Payout'));
      if (payout === null) throw Refusal.notFound('Payout');
      return success('Payout retrieved', payout);
    },
  );
};

/**
 * Creates the error for a missing default wallet. Merchants cannot create wallets, so the message says what to ask the
 * provider for.
 */
function noDefaultWallet(currency: string, environment: Environment): Refusal {
  const message =
    `There is no default wallet in ${currency} for the ${environment} environment: ` +
    `ask your provider to create one (currency ${currency}, environment ${environment})`;
  return Refusal.invalid([{ path: 'currency', message }], 'no_default_wallet');
}

const noAccount = {
  destinationBankCode: null,
  destinationAccountNumber: null,
  destinationAccountName: null,
  remarks: null,
};

/** A payout that a merchant requests. */
interface PayoutOrder {
  readonly wallet: Wallet;
  readonly amount: number;
  /** The merchant's reference, already reserved by `reserveReference`; null if the request has none. */
  readonly merchantReference: string | null;
  readonly destination: PayoutDestination;
}

/**
 * Debits the wallet, inserts the ledger entry and creates the payout. Call this in a database transaction, so that all
 * three writes commit together. Insufficient balance gives a 422 like any invalid field, and not a 402: clients that
 * support 402 would take it for a charge by the gateway itself.
 * @throws Refusal 422 `insufficient_balance`
 */
async function createPayout(
  transaction: ServicesDatabase,
  { clock, bank }: Pick<RouteContext, 'clock' | 'bank'>,
  tenant: Tenant,
  { wallet, amount, merchantReference, destination }: PayoutOrder,
): Promise<Payout> {
  await lockListForInsert(transaction, tenant);
  const shared = { walletId: wallet.id, amount, currency: wallet.currency };
  const debit = { ...shared, type: 'debit', counterAccount: 'payouts' } as const;
  const moved = await moveMoney(transaction, tenant, debit, async () => {
    const now = clock.now();
    const named = { ...shared, id: randomUUID(), reference: ulid(), merchantReference };
    const times = { createdAt: now, dueAt: addMilliseconds(now, bank.delayMilliseconds) };
    const payout = await insertPayout(transaction, tenant, { ...named, ...destination, ...times });
    const { id: payoutId, reference } = payout;
    const createdAt = Date.parse(payout.createdAt);
    return { payout, payoutId, status: 'pending', reference, createdAt, reason: null, actor: null };
  });
  if (moved === null) throw Refusal.invalid([insufficientBalance], 'insufficient_balance');
  return moved.details.payout;
}
