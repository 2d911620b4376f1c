import { successPage } from '../../rest/envelope.js';
import { tenantOf } from '../identity.js';
import { pagingOf, pagingQuery } from '../../rest/paging.js';
import type { Routes } from '../routes.js';
import { listTransactions } from './repository.js';

/** The list of transactions, at both of its addresses. */
export const transactionRoutes: Routes = (app, { database }) => {
  for (const path of ['/transactions', '/dev/transactions']) {
    app.get(path, { schema: { querystring: pagingQuery } }, async (request) => {
      const paging = pagingOf(request.query);
      const page = await listTransactions(database, tenantOf(request), paging);
      return successPage('Transactions retrieved', page, paging);
    });
  }
};
