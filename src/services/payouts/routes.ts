import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import { answerOnce } from '../idempotency/answer-once.js';
import { recordParams } from '../fields.js';
import { tenantOf, type Environment } from '../identity.js';
import { idIn, type Routes } from '../routes.js';
import { findDefaultWallet, findWallet } from '../wallets/repository.js';
import { createPayout } from './create-payout.js';
import { claimReference } from './merchant-reference.js';
import { findPayout, listPayouts } from './repository.js';
import { bankPayoutBody, payoutSchema, payoutsQuery, recipientPayoutBody } from './schema.js';

const created = 'Payout created';

/** Payouts. */
export const payoutRoutes: Routes = (app, context) => {
  const { database } = context;

  app.post(
    '/dev/payouts',
    {
      schema: { body: bankPayoutBody, querystring: noQuery },
      config: {
        operation: {
          summary: 'Pay out to a bank account, from a wallet that is named',
          status: 201,
          data: payoutSchema,
          message: created,
          codes: ['reference_taken', 'insufficient_balance'],
          failures: { 404: 'There is no such wallet' },
        },
      },
    },
    (request, reply) =>
      answerOnce(context, request, reply, async (transaction) => {
        const tenant = tenantOf(request);
        const { walletId, amount, reference, remarks, ...account } = request.body;
        const merchantReference = reference ?? null;
        await claimReference(transaction, tenant, merchantReference);
        const wallet = await findWallet(transaction, tenant, walletId.toLowerCase());
        if (wallet === null) throw Refusal.notFound('Wallet');
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
        operation: {
          summary: 'Pay out to a recipient, from the default wallet of the currency',
          status: 201,
          data: payoutSchema,
          message: created,
          example: { ...noAccount, recipient: '+2348012345678' },
          codes: ['reference_taken', 'insufficient_balance', 'no_default_wallet'],
        },
      },
    },
    (request, reply) =>
      answerOnce(context, request, reply, async (transaction) => {
        const tenant = tenantOf(request);
        const { amount, currency, recipient, reference } = request.body;
        const merchantReference = reference ?? null;
        await claimReference(transaction, tenant, merchantReference);
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

/** Only the operator of the services can create a wallet, so the message says what to ask for. */
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
