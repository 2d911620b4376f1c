import { success, successPage } from '../../rest/envelope.js';
import { pagingOf, rangeOf, type Page, type Paging } from '../../rest/paging.js';
import { idParams, noQuery, type RestApp } from '../../rest/rest-app.js';
import { moveByOperator } from '../ledger/move-by-operator.js';
import type { EntryRow } from '../ledger/move-money.js';
import { accountSchema, entriesQuery, entrySchema, movedSchema, movementBody, type Entry } from './schema.js';
import { eventAuthorOf, ledgerNameOf, requireApproval } from './operator-access.js';
import { storeOperatorEvent } from './operator-events.js';
import { walletOf, type OperatorContext } from './wallet-routes.js';
import { sql } from '../../database/kysely.js';
import type { Environment } from '../assertion-verifier.js';
import type { ServicesDatabase } from '../services-database.js';

const movements = [
  {
    path: '/wallets/:id/fund',
    type: 'credit',
    action: 'wallet.funded',
    summary: "Move money from the float (the operator's account) into a wallet; each reference moves money only once",
  },
  {
    path: '/wallets/:id/withdraw',
    type: 'debit',
    action: 'wallet.withdrawn',
    summary:
      "Move money from a wallet back into the float (the operator's account); each reference moves money only once",
  },
] as const;

/** Adds the routes for movements, ledger entries and accounts. */
export function movementRoutes(app: RestApp, context: OperatorContext): void {
  const { database, clock, storesEvents, attempts } = context;
  for (const { path, type, action, summary } of movements) {
    app.post(
      path,
      {
        schema: { params: idParams, body: movementBody, querystring: noQuery },
        config: { permission: 'wallets:fund', operation: { summary, status: 201, data: movedSchema } },
      },
      async (request, reply) => {
        const { merchantId = null, ...order } = request.body;
        const wallet = await walletOf(database, request.params.id);
        const actor = ledgerNameOf(request);
        const author = eventAuthorOf(request, order.reason);
        const { entry, isRepeated } = await moveByOperator(
          context,
          wallet,
          { ...order, merchantId, type, actor },
          {
            // Not called for a repeat, which moves no money and so needs no approval.
            beforeMove: () => {
              if (type === 'credit') requireApproval(request, { ...order, walletId: wallet.id }, attempts);
            },
            onMoved: async (transaction, made) => {
              if (storesEvents) await storeOperatorEvent(transaction, clock, { ...author, action, ...changeOf(made) });
            },
          },
        );
        reply.code(isRepeated ? 200 : 201);
        const message = isRepeated ? 'An earlier request with this reference already moved the money' : 'Money moved';
        return success(message, { ...toEntry(entry), isRepeated });
      },
    );
  }

  app.get(
    '/wallets/:id/entries',
    {
      schema: { params: idParams, querystring: entriesQuery },
      config: {
        permission: 'wallets:read',
        operation: { summary: 'The ledger entries of a wallet, newest first', page: entrySchema },
      },
    },
    async (request) => {
      const paging = pagingOf(request.query);
      const wallet = await walletOf(database, request.params.id);
      attempts?.read(eventAuthorOf(request, null), wallet.merchant_id, 'entries');
      const { items, totalRecords } = await listEntries(database, wallet, request.query.reference, paging);
      return successPage('Entries retrieved', { items: items.map(toEntry), totalRecords }, paging);
    },
  );

  app.get(
    '/accounts',
    {
      schema: { querystring: noQuery },
      config: {
        permission: 'wallets:read',
        operation: {
          summary:
            'The balances of all accounts, which add up to zero in each environment and currency. Each request reads the whole ledger',
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

/** Builds the parts of a movement's event: the merchant, and the wallet's state before and after the movement. */
function changeOf({ type, amount, balance_after: balance, ...entry }: EntryRow) {
  const { merchant_id: merchantId, wallet_id: walletId, environment, currency, reference } = entry;
  return {
    merchantId,
    before: { balance: type === 'credit' ? balance - amount : balance + amount },
    after: { walletId, environment, currency, balance, amount, reference },
  };
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

/** An account and its balance. All wallets of an environment and currency together are one account. */
export interface Account {
  readonly environment: Environment;
  readonly currency: string;
  /**
   * `float`: the operator's money; `payouts`: money at the bank or on its way there; `wallets`: the merchants' money.
   */
  readonly account: 'float' | 'payouts' | 'wallets';
  /** Balance in minor units, as text, because the sum of many wallets can exceed what a JSON number holds exactly. */
  readonly balance: string;
}

/**
 * Lists all accounts, which add up to zero per environment and currency. The wallets' sum comes from their balances,
 * the other sums from the ledger entries. One statement reads everything, so that all sums come from one snapshot.
 */
export async function listAccounts(database: ServicesDatabase): Promise<Account[]> {
  const { rows } = await sql<Account>`
    select environment, currency, account, cast(sum(amount) as text) as balance from (
      select environment, currency, counter_account as account,
        case when type = 'credit' then -amount else amount end as amount from transactions
      union all select environment, currency, 'wallets' as account, balance as amount from wallets
    ) as movements
    group by environment, currency, account
    order by environment, currency, account`.execute(database);
  return rows;
}

/**
 * Lists a wallet's ledger entries, newest first. Ids are assigned while the wallet is locked, so they follow the commit
 * order.
 * @param reference limits the list to the entry with this reference; undefined lists all entries
 */
async function listEntries(
  database: ServicesDatabase,
  wallet: { readonly id: string; readonly merchant_id: string; readonly environment: string },
  reference: string | undefined,
  paging: Paging,
): Promise<Page<EntryRow>> {
  let wanted = database
    .selectFrom('transactions')
    // The index starts with merchant and environment, so the query filters by them too.
    .where('merchant_id', '=', wallet.merchant_id)
    .where('environment', '=', wallet.environment as EntryRow['environment'])
    .where('wallet_id', '=', wallet.id);
  if (reference !== undefined) wanted = wanted.where('reference', '=', reference);
  const { offset, limit } = rangeOf(paging);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const items = await wanted.selectAll().orderBy('id', 'desc').offset(offset).limit(limit).execute();
  return { items, totalRecords: total };
}
