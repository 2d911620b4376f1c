import { actorOf } from '../../rest/actor.js';
import { success, successPage } from '../../rest/envelope.js';
import { pagingOf, pagingQuery } from '../../rest/paging.js';
import { idParams, noQuery, type RestApp } from '../../rest/rest-app.js';
import { listAccounts } from '../ledger/accounts.js';
import { listEntries } from '../ledger/entries.js';
import { moveByOperator } from '../ledger/move-by-operator.js';
import type { EntryRow } from '../ledger/move-money.js';
import { accountSchema, entrySchema, movedSchema, movementBody, type Entry } from './schema.js';
import { walletOf, type OperatorContext } from './wallet-routes.js';

const movements = [
  {
    path: '/wallets/:id/fund',
    type: 'credit',
    summary: 'Put money of the float into a wallet, once for a reference',
  },
  {
    path: '/wallets/:id/withdraw',
    type: 'debit',
    summary: 'Take money out of a wallet, back into the float, once for a reference',
  },
] as const;

/** Adds the routes about the money in wallets and other accounts. */
export function movementRoutes(app: RestApp, context: OperatorContext): void {
  const { database } = context;
  for (const { path, type, summary } of movements) {
    app.post(
      path,
      {
        schema: { params: idParams, body: movementBody, querystring: noQuery },
        config: { operation: { summary, status: 201, data: movedSchema } },
      },
      async (request, reply) => {
        const { merchantId = null, ...order } = request.body;
        const wallet = await walletOf(database, request.params.id);
        const actor = actorOf(request);
        const { entry, isRepeated } = await moveByOperator(context, wallet, { ...order, merchantId, type, actor });
        reply.code(isRepeated ? 200 : 201);
        const message = isRepeated ? 'The money was moved before, under this reference' : 'Money moved';
        return success(message, { ...toEntry(entry), isRepeated });
      },
    );
  }

  app.get(
    '/wallets/:id/entries',
    {
      schema: { params: idParams, querystring: pagingQuery },
      config: { operation: { summary: 'The entries of a wallet, newest first', page: entrySchema } },
    },
    async (request) => {
      const paging = pagingOf(request.query);
      const wallet = await walletOf(database, request.params.id);
      const { items, totalRecords } = await listEntries(database, wallet, paging);
      return successPage('Entries retrieved', { items: items.map(toEntry), totalRecords }, paging);
    },
  );

  app.get(
    '/accounts',
    {
      schema: { querystring: noQuery },
      config: {
        operation: {
          summary: 'The accounts of each environment and currency, which add up to zero; it reads the whole ledger',
          page: accountSchema,
        },
      },
    },
    async () => {
      const items = await listAccounts(database);
      const paging = { page: 1, perPage: Math.max(1, items.length) };
      return successPage('Accounts retrieved', { items, totalRecords: items.length }, paging);
    },
  );
}

function toEntry(row: EntryRow): Entry {
  const isCredit = row.type === 'credit';
  return {
    id: row.id,
    from: isCredit ? row.counter_account : row.wallet_id,
    to: isCredit ? row.wallet_id : row.counter_account,
    amount: row.amount,
    currency: row.currency,
    environment: row.environment,
    merchantId: row.merchant_id,
    walletId: row.wallet_id,
    status: row.status,
    reference: row.reference,
    reason: row.reason,
    actor: row.actor,
    payoutId: row.payout_id,
    balanceAfter: row.balance_after,
    createdAt: new Date(row.created_at).toISOString(),
  };
}
