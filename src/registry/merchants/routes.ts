import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import { type Access } from '../administrators/access.js';
import { authorOf, callerOf } from '../administrators/request-author.js';
import { changeOrRequest } from '../approvals/requests.js';
import { permits } from '../administrators/roles.js';
import { idIn } from '../fields.js';
import { withPropagation } from '../propagation-schema.js';
import { respondToChange, type Routes } from '../routes.js';
import { countsOf } from '../usage/merchant-counts.js';
import { changeMerchant, createMerchant, findMerchant, listMerchants } from './repository.js';
import {
  listedMerchantSchema,
  merchantChangesBody,
  merchantSchema,
  merchantsQuery,
  newMerchantBody,
} from './schema.js';

/**
 * Who can change a merchant. A member with the role merchant-admin is allowed to change the allowlists of the merchant,
 * but not its name, status and go-live: the platform decides these.
 */
const changeAccess: Access = {
  ...{ permission: 'allowlists:write', merchant: 'id' },
  fields: { name: 'merchants:write', status: 'merchants:write', goLive: 'merchants:write' },
};

/** Adds the routes that manage merchants. A change affects the gateways of both environments. */
export const merchantRoutes: Routes = (app, context) => {
  const { database, clock, confirm } = context;

  app.post(
    '/merchants',
    {
      schema: { body: newMerchantBody, querystring: noQuery },
      config: {
        operation: { summary: 'Create a merchant', status: 201, data: withPropagation(merchantSchema) },
        access: { permission: 'merchants:create' },
      },
    },
    async (request, reply) => {
      const merchant = await changeOrRequest(context, request, request.body, (guard) =>
        createMerchant(context, authorOf(request), request.body, guard),
      );
      return respondToChange(reply, 201, 'Merchant created', merchant, await confirm(merchant.revision, null));
    },
  );

  app.get(
    '/merchants',
    {
      schema: { querystring: merchantsQuery },
      config: {
        operation: { summary: 'Merchants, newest first', page: listedMerchantSchema },
        access: { permission: 'merchants:read', merchant: 'list', reads: 'allowlists' },
      },
    },
    async (request) => {
      const { query } = request;
      const paging = pagingOf(query);
      const { merchantId, roles } = callerOf(request);
      const { items, ...page } = await listMerchants(database, { ...query, id: merchantId }, paging);
      const ids = items.map(({ id }) => id);
      const counts = permits(roles, 'usage:read') ? await countsOf(database, ids, clock.now()) : () => null;
      const listed = items.map((merchant) => ({ ...merchant, counts: counts(merchant.id) }));
      return successPage('Merchants retrieved', { ...page, items: listed }, paging);
    },
  );

  app.get(
    '/merchants/:id',
    {
      schema: { params: idParams, querystring: noQuery },
      config: {
        operation: { summary: 'One merchant', data: merchantSchema },
        access: { permission: 'merchants:read', merchant: 'id', reads: 'allowlists' },
      },
    },
    async ({ params }) => success('Merchant retrieved', await findMerchant(database, idIn(params, 'Merchant'))),
  );

  app.patch(
    '/merchants/:id',
    {
      schema: { params: idParams, body: merchantChangesBody, querystring: noQuery },
      config: {
        operation: { summary: 'Change fields of a merchant', data: withPropagation(merchantSchema) },
        access: changeAccess,
      },
    },
    async (request, reply) => {
      const id = idIn(request.params, 'Merchant');
      const { merchant, revision } = await changeOrRequest(context, request, request.body, (guard) =>
        changeMerchant(context, authorOf(request), id, request.body, guard),
      );
      return respondToChange(reply, 200, 'Merchant changed', merchant, await confirm(revision, null));
    },
  );
};
