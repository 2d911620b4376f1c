import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import { actorOf } from '../../rest/actor.js';
import { idIn } from '../fields.js';
import { withPropagation } from '../propagation-schema.js';
import { respondToChange, type Routes } from '../routes.js';
import { changeMerchant, createMerchant, findMerchant, listMerchants } from './repository.js';
import { merchantChangesBody, merchantSchema, merchantsQuery, newMerchantBody } from './schema.js';

/** Routes that manage merchants. A change affects the gateways of both environments. */
export const merchantRoutes: Routes = (app, context) => {
  const { database, confirm } = context;

  app.post(
    '/merchants',
    {
      schema: { body: newMerchantBody, querystring: noQuery },
      config: { operation: { summary: 'Create a merchant', status: 201, data: withPropagation(merchantSchema) } },
    },
    async (request, reply) => {
      const merchant = await createMerchant(context, actorOf(request), request.body);
      return respondToChange(reply, 201, 'Merchant created', merchant, await confirm(merchant.revision, null));
    },
  );

  app.get(
    '/merchants',
    {
      schema: { querystring: merchantsQuery },
      config: { operation: { summary: 'Merchants, newest first', page: merchantSchema } },
    },
    async ({ query }) => {
      const paging = pagingOf(query);
      return successPage('Merchants retrieved', await listMerchants(database, query, paging), paging);
    },
  );

  app.get(
    '/merchants/:id',
    {
      schema: { params: idParams, querystring: noQuery },
      config: { operation: { summary: 'One merchant', data: merchantSchema } },
    },
    async ({ params }) => success('Merchant retrieved', await findMerchant(database, idIn(params, 'Merchant'))),
  );

  app.patch(
    '/merchants/:id',
    {
      schema: { params: idParams, body: merchantChangesBody, querystring: noQuery },
      config: { operation: { summary: 'Change fields of a merchant', data: withPropagation(merchantSchema) } },
    },
    async (request, reply) => {
      const id = idIn(request.params, 'Merchant');
      const { merchant, revision } = await changeMerchant(context, actorOf(request), id, request.body);
      return respondToChange(reply, 200, 'Merchant changed', merchant, await confirm(revision, null));
    },
  );
};
