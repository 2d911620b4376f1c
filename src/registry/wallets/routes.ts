import { keylessLine } from '../../rest/line.js';
import { pagingQuery } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import { fundingSchema } from '../../rest/services-token.js';
import Type, { Check } from '../../typebox/typebox.js';
import { identifierForm } from '../fields.js';
import { findMerchant } from '../merchants/repository.js';
import type { Routes } from '../routes.js';
import { servicesTokenQuery } from '../services-tokens/schema.js';
import { type RelayOptions, WalletRelay } from './relay.js';

const { walletId, environment, currency, amount, reference } = fundingSchema.properties;
const merchantId = Type.String({ pattern: identifierForm, description: 'the id of a merchant' });

const walletsQuery = Type.Object({
  ...pagingQuery.properties,
  merchantId: Type.Optional(merchantId),
  environment: Type.Optional(environment),
  currency: Type.Optional(currency),
});

const entriesQuery = Type.Object({ ...pagingQuery.properties, reference: Type.Optional(reference) });

const newWalletBody = Type.Object({
  ...{ merchantId, environment, currency },
  isDefault: Type.Optional(Type.Boolean({ description: 'true or false' })),
  id: Type.Optional(walletId),
});

const movementBody = Type.Object({
  ...{ amount, currency, environment, reference },
  merchantId: Type.Optional(merchantId),
  reason: keylessLine(200, 'Deposit of 2026-01-31'),
});

/**
 * Returns the wallet id in a path. Rejects a text that does not have the form of a wallet id, because the id becomes
 * part of the path of a request to the services.
 * @throws Refusal
 */
function walletIn({ id }: { readonly id: string }): string {
  if (!Check(walletId, id)) throw new Refusal(404, 'Wallet not found', [], 'wallet_not_found');
  return id;
}

/**
 * Adds the console's routes for wallets. The services store the wallets, so the registry relays each request to the
 * operators' API of the services.
 */
export function walletRoutes(options: RelayOptions): Routes {
  return (app, context) => {
    const relay = new WalletRelay(context, options);
    app.get(
      '/wallets',
      { schema: { querystring: walletsQuery }, config: { access: { permission: 'wallets:read' } } },
      async (request) => (await relay.send(request, { path: [], query: request.query })).body,
    );

    app.get(
      '/wallets/:id',
      { schema: { params: idParams, querystring: noQuery }, config: { access: { permission: 'wallets:read' } } },
      async (request) => (await relay.send(request, { path: [walletIn(request.params)] })).body,
    );

    app.get(
      '/wallets/:id/entries',
      { schema: { params: idParams, querystring: entriesQuery }, config: { access: { permission: 'wallets:read' } } },
      async (request) => {
        const path = [walletIn(request.params), 'entries'];
        return (await relay.send(request, { path, query: request.query })).body;
      },
    );

    app.post(
      '/wallets',
      { schema: { body: newWalletBody, querystring: noQuery }, config: { access: { permission: 'wallets:write' } } },
      async (request, reply) => {
        // Checks the merchant here, because the services do not know the merchants and would create a useless wallet.
        await findMerchant(context.database, request.body.merchantId);
        const { status, body } = await relay.send(request, { path: [], body: request.body });
        return reply.code(status).send(body);
      },
    );

    for (const movement of ['fund', 'withdraw'] as const) {
      app.post(
        `/wallets/:id/${movement}`,
        {
          schema: { params: idParams, body: movementBody, querystring: servicesTokenQuery },
          config: { access: { permission: 'wallets:fund', isProven: true } },
        },
        async (request, reply) => {
          const { status, body } = await relay.send(request, {
            ...{ path: [walletIn(request.params), movement], body: request.body, isMovement: true },
            approvalId: request.query.approvalId,
          });
          return reply.code(status).send(body);
        },
      );
    }
  };
}
