import { success, successPage, type Problem } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import { answerOnce } from '../idempotency/answer-once.js';
import { tenantOf } from '../identity.js';
import { idIn, type Routes } from '../routes.js';
import { findDefaultWallet, findWallet } from '../wallets/repository.js';
import { createPayout } from './create-payout.js';
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
          failures: { 404: 'There is no such wallet' },
        },
      },
    },
    (request, reply) =>
      answerOnce(context, request, reply, async (transaction) => {
        const tenant = tenantOf(request);
        const { walletId, amount, remarks = null, ...account } = request.body;
        const wallet = await findWallet(transaction, tenant, walletId.toLowerCase());
        if (wallet === null) throw Refusal.notFound('Wallet');
        const destination = { ...account, recipient: null, remarks };
        return success(created, await createPayout(transaction, context, tenant, { wallet, amount, destination }));
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
        },
      },
    },
    (request, reply) =>
      answerOnce(context, request, reply, async (transaction) => {
        const tenant = tenantOf(request);
        const { amount, currency, recipient } = request.body;
        const wallet = await findDefaultWallet(transaction, tenant, currency);
        const noWallet: Problem = { path: 'currency', message: `There is no default wallet in ${currency}` };
        if (wallet === null) throw Refusal.invalid([noWallet]);
        const destination = { ...noAccount, recipient };
        return success(created, await createPayout(transaction, context, tenant, { wallet, amount, destination }));
      }),
  );

  app.get(
    '/dev/payouts',
    {
      schema: { querystring: payoutsQuery },
      config: { operation: { summary: 'Payouts, newest first', page: payoutSchema } },
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
      schema: { params: idParams, querystring: noQuery },
      config: { operation: { summary: 'One payout', data: payoutSchema } },
    },
    async (request) => {
      const payout = await findPayout(database, tenantOf(request), idIn(request.params, 'Payout'));
      if (payout === null) throw Refusal.notFound('Payout');
      return success('Payout retrieved', payout);
    },
  );
};

const noAccount = {
  destinationBankCode: null,
  destinationAccountNumber: null,
  destinationAccountName: null,
  remarks: null,
};
