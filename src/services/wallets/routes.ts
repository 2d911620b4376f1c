import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import { recordParams } from '../fields.js';
import { tenantOf } from '../identity.js';
import { idIn, type Routes } from '../routes.js';
import { findWallet, listWallets } from './repository.js';
import { walletSchema, walletsQuery } from './schema.js';

/** The merchant's wallets, to look at. */
export const walletRoutes: Routes = (app, { database }) => {
  app.get(
    '/dev/wallets',
    {
      schema: { querystring: walletsQuery },
      config: { operation: { summary: 'Wallets, newest first', message: 'Wallets retrieved', page: walletSchema } },
    },
    async (request) => {
      const paging = pagingOf(request.query);
      const page = await listWallets(database, tenantOf(request), request.query, paging);
      return successPage('Wallets retrieved', page, paging);
    },
  );

  app.get(
    '/dev/wallets/:id',
    {
      schema: { params: recordParams, querystring: noQuery },
      config: { operation: { summary: 'One wallet', message: 'Wallet retrieved', data: walletSchema } },
    },
    async (request) => {
      const wallet = await findWallet(database, tenantOf(request), idIn(request.params, 'Wallet'));
      if (wallet === null) throw Refusal.notFound('Wallet');
      return success('Wallet retrieved', wallet);
    },
  );
};
