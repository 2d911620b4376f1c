import { success, successPage } from '../../rest/envelope.js';
import { pagingOf, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { idParams, noQuery, type RestApp } from '../../rest/rest-app.js';
import type { Tenant } from '../assertion-verifier.js';
import { uuidForm } from '../fields.js';
import { type NewWallet, openWallet, type WalletRow } from '../ledger/open-wallet.js';
import type { RouteContext } from '../routes.js';
import type { ServicesDatabase } from '../services-database.js';
import { eventAuthorOf, ledgerNameOf } from './operator-access.js';
import type { OperatorAttempts } from './operator-attempts.js';
import { storeOperatorEvent } from './operator-events.js';
import {
  newWalletBody,
  openedWalletSchema,
  type OperatorWallet,
  operatorWalletSchema,
  operatorWalletsQuery,
} from './schema.js';

/** Dependencies of the operators' routes. */
export interface OperatorContext extends Pick<RouteContext, 'database' | 'clock'> {
  /** Whether each change is stored as an event, to be sent to the registry. */
  readonly storesEvents: boolean;
  /**
   * Storage of events about refused attempts, and about an operator's first read of a merchant's records in an hour.
   * Null: such events are not stored.
   */
  readonly attempts: OperatorAttempts | null;
}

/** Adds the routes of wallets. */
export function walletRoutes(app: RestApp, { database, clock, storesEvents, attempts }: OperatorContext): void {
  app.post(
    '/wallets',
    {
      schema: { body: newWalletBody, querystring: noQuery },
      config: {
        permission: 'wallets:write',
        operation: {
          summary: 'Create an empty wallet; repeating the request returns the same wallet',
          status: 201,
          data: openedWalletSchema,
        },
      },
    },
    async (request, reply) => {
      const { merchantId, environment, currency, isDefault = true, id: givenId } = request.body;
      if (!isDefault && givenId === undefined) throw idMissing();
      const id = givenId?.toLowerCase() ?? null;
      const tenant = { merchantId, environment };
      const wanted = { id, currency, isDefault, createdBy: ledgerNameOf(request), createdAt: clock.now() };
      const author = eventAuthorOf(request, null);
      const { wallet, existed } = await database.transaction().execute(async (transaction) => {
        const opened = await openWallet(transaction, tenant, wanted);
        if (storesEvents && !opened.existed)
          await storeOperatorEvent(transaction, clock, {
            ...{ ...author, action: 'wallet.created', merchantId, before: null },
            after: { walletId: opened.wallet.id, environment, currency, balance: 0 },
          });
        return opened;
      });
      if (existed) requireSame(wallet, tenant, wanted);
      reply.code(existed ? 200 : 201);
      const message = existed ? 'The wallet already exists' : 'Wallet created';
      return success(message, { ...toWallet(wallet), isRepeated: existed });
    },
  );

  app.get(
    '/wallets',
    {
      schema: { querystring: operatorWalletsQuery },
      config: {
        permission: 'wallets:read',
        operation: { summary: 'Wallets, newest first', page: operatorWalletSchema },
      },
    },
    async (request) => {
      const { merchantId, environment, currency } = request.query;
      attempts?.read(eventAuthorOf(request, null), merchantId ?? '', 'wallets');
      let wanted = database.selectFrom('wallets');
      if (merchantId !== undefined) wanted = wanted.where('merchant_id', '=', merchantId);
      if (environment !== undefined) wanted = wanted.where('environment', '=', environment);
      if (currency !== undefined) wanted = wanted.where('currency', '=', currency);
      const paging = pagingOf(request.query);
      const { offset, limit } = rangeOf(paging);
      const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
      const rows = await wanted.selectAll().orderBy('sequence', 'desc').offset(offset).limit(limit).execute();
      return successPage('Wallets retrieved', { items: rows.map(toWallet), totalRecords: total }, paging);
    },
  );

  app.get(
    '/wallets/:id',
    {
      schema: { params: idParams, querystring: noQuery },
      config: { permission: 'wallets:read', operation: { summary: 'One wallet', data: operatorWalletSchema } },
    },
    async (request) => {
      const wallet = await walletOf(database, request.params.id);
      attempts?.read(eventAuthorOf(request, null), wallet.merchant_id, 'wallets');
      return success('Wallet retrieved', toWallet(wallet));
    },
  );
}

/**
 * Finds a wallet by the id in a path.
 * @throws Refusal 404 `wallet_not_found`
 */
export async function walletOf(database: ServicesDatabase, id: string): Promise<WalletRow> {
  const wanted = database.selectFrom('wallets').selectAll().where('id', '=', id.toLowerCase());
  // A malformed id gives the same response as an unknown one.
  const row = uuidForm.test(id) ? await wanted.executeTakeFirst() : undefined;
  if (row === undefined) throw new Refusal(404, 'Wallet not found', [], 'wallet_not_found');
  return row;
}

function idMissing(): Refusal {
  const message = 'id is required when isDefault is false, so that the request can be repeated safely';
  return new Refusal(422, message, [{ path: 'id', message }], 'validation_failed');
}

/**
 * Throws a 409 `wallet_exists` if the existing wallet differs from the requested one. Accepts a default wallet although
 * the request has `isDefault: false`, because the first wallet in a currency always becomes the default.
 */
function requireSame(
  wallet: WalletRow,
  { merchantId, environment }: Tenant,
  { id, currency, isDefault }: Pick<NewWallet, 'id' | 'currency' | 'isDefault'>,
): void {
  const isSame =
    (id === null || wallet.id === id) &&
    wallet.merchant_id === merchantId &&
    wallet.environment === environment &&
    wallet.currency === currency;
  if (isSame && (!isDefault || wallet.is_default === 1)) return;
  const message = isSame
    ? `The wallet ${wallet.id} already exists, and is not the default wallet in ${currency}: set isDefault to false`
    : wallet.id === id
      ? `The id ${wallet.id} belongs to another wallet: choose another id`
      : `The merchant already has a default wallet in ${currency}, with the id ${wallet.id}: to create an additional wallet, set isDefault to false`;
  throw new Refusal(409, message, [], 'wallet_exists');
}

function toWallet(row: WalletRow): OperatorWallet {
  return {
    id: row.id,
    merchantId: row.merchant_id,
    environment: row.environment,
    currency: row.currency,
    balance: row.balance,
    isDefault: row.is_default === 1,
    createdBy: row.created_by,
    createdAt: new Date(row.created_at).toISOString(),
  };
}
