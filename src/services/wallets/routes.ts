import { success, successPage } from '../../rest/envelope.js';
import { tenantOf } from '../identity.js';
import { pagingOf, pagingQuery } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import { idIn, type Routes } from '../routes.js';
import { findWallet, listWallets } from './repository.js';

/** The merchant's wallets, to look at. */
export const walletRoutes: Routes = (app, { database }) => {
  app.get('/dev/wallets', { schema: { querystring: pagingQuery } }, async (request) => {
    const paging = pagingOf(request.query);
    return successPage('Wallets retrieved', await listWallets(database, tenantOf(request), paging), paging);
  });

  app.get('/dev/wallets/:id', { schema: { params: idParams, querystring: noQuery } }, async (request) => {
    const wallet = await findWallet(database, tenantOf(request), idIn(request.params, 'Wallet'));
    if (wallet === null) throw Refusal.notFound('Wallet');
    return success('Wallet retrieved', wallet);
  });
};
