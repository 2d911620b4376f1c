import { success, successPage, type Problem } from '../../rest/envelope.js';
import { tenantOf } from '../identity.js';
import { pagingOf, pagingQuery } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import { idIn, type Routes } from '../routes.js';
import { findDefaultWallet, findWallet } from '../wallets/repository.js';
import { createPayout, type PayoutOutcome } from './create-payout.js';
import { findPayout, listPayouts } from './repository.js';
import { bankPayoutBody, recipientPayoutBody, type Payout } from './schema.js';

/**
 * Payouts. Too little money is a 422 like any other field that cannot be accepted: 402 is the gateway's own bill in the
 * clients that know it.
 */
export const payoutRoutes: Routes = (app, context) => {
  const { database } = context;

  app.post('/dev/payouts', { schema: { body: bankPayoutBody, querystring: noQuery } }, async (request, reply) => {
    const tenant = tenantOf(request);
    const { walletId, amount, remarks, ...account } = request.body;
    const outcome = await createPayout(context, tenant, {
      wallet: (transaction) => findWallet(transaction, tenant, walletId.toLowerCase()),
      amount,
      destination: { ...account, recipient: null, remarks: remarks ?? null },
    });
    reply.code(201);
    return success('Payout created', payoutIn(outcome, Refusal.notFound('Wallet')));
  });

  app.post('/payouts', { schema: { body: recipientPayoutBody, querystring: noQuery } }, async (request, reply) => {
    const tenant = tenantOf(request);
    const { amount, currency, recipient } = request.body;
    const outcome = await createPayout(context, tenant, {
      wallet: (transaction) => findDefaultWallet(transaction, tenant, currency),
      amount,
      destination: { ...noAccount, recipient },
    });
    const noWallet: Problem = { path: 'currency', message: `There is no default wallet in ${currency}` };
    reply.code(201);
    return success('Payout created', payoutIn(outcome, Refusal.invalid([noWallet])));
  });

  app.get('/dev/payouts', { schema: { querystring: pagingQuery } }, async (request) => {
    const paging = pagingOf(request.query);
    return successPage('Payouts retrieved', await listPayouts(database, tenantOf(request), paging), paging);
  });

  app.get('/dev/payouts/:id', { schema: { params: idParams, querystring: noQuery } }, async (request) => {
    const payout = await findPayout(database, tenantOf(request), idIn(request.params, 'Payout'));
    if (payout === null) throw Refusal.notFound('Payout');
    return success('Payout retrieved', payout);
  });
};

const noAccount = {
  destinationBankCode: null,
  destinationAccountNumber: null,
  destinationAccountName: null,
  remarks: null,
};

function payoutIn(outcome: PayoutOutcome, withoutWallet: Refusal): Payout {
  switch (outcome.kind) {
    case 'created':
      return outcome.payout;
    case 'wallet_not_found':
      throw withoutWallet;
    case 'insufficient_balance':
      throw Refusal.invalid([{ path: 'amount', message: 'Insufficient wallet balance' }]);
  }
}
