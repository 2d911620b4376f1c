import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import { tenantOf } from '../identity.js';
import type { Routes } from '../routes.js';
import { findTransaction, listTransactions } from './repository.js';
import { transactionNumberForm, transactionParams, transactionSchema, transactionsQuery } from './schema.js';

/** The transactions, at both of their addresses. */
export const transactionRoutes: Routes = (app, { database }) => {
  for (const path of ['/transactions', '/dev/transactions']) {
    app.get(
      path,
      {
        schema: { querystring: transactionsQuery },
        config: {
          operation: {
            summary: 'Transactions, newest first',
            message: 'Transactions retrieved',
            page: transactionSchema,
          },
        },
      },
      async (request) => {
        const paging = pagingOf(request.query);
        const page = await listTransactions(database, tenantOf(request), request.query, paging);
        return successPage('Transactions retrieved', page, paging);
      },
    );

    app.get(
      `${path}/:id`,
      {
        schema: { params: transactionParams, querystring: noQuery },
        config: {
          operation: { summary: 'One transaction', message: 'Transaction retrieved', data: transactionSchema },
        },
      },
      async (request) => {
        const { id } = request.params;
        const transaction = transactionNumberForm.test(id)
          ? await findTransaction(database, tenantOf(request), Number(id))
          : null;
        if (transaction === null) throw Refusal.notFound('Transaction');
        return success('Transaction retrieved', transaction);
      },
    );
  }
};
