import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { authorOf } from '../administrators/request-author.js';
import { idIn } from '../fields.js';
import { findMerchant } from '../merchants/repository.js';
import { withPropagation } from '../propagation-schema.js';
import { respondToChange, type Routes } from '../routes.js';
import { createKey, resetKey, revokeKey } from './key-changes.js';
import { findKey, listKeys, toApiKey, toListedKeys } from './repository.js';
import { apiKeySchema, createdKeySchema, keysQuery, listedKeySchema } from './schema.js';
import { newKeyBody, resetBody, resetKeySchema } from './schema.js';

const keyParams = Type.Object({ keyId: Type.String() });
const keyIdIn = ({ keyId }: Static<typeof keyParams>): string => idIn({ id: keyId }, 'Key');

/** Adds the routes that manage keys. A change affects only the gateways of the key's environment. */
export const keyRoutes: Routes = (app, context) => {
  const { database, confirm } = context;

  app.post(
    '/merchants/:id/keys',
    {
      schema: { params: idParams, body: newKeyBody, querystring: noQuery },
      config: {
        operation: { summary: 'Create a key, shown once', status: 201, data: withPropagation(createdKeySchema) },
        access: { permission: 'keys:create', merchant: 'id', isProven: true },
      },
    },
    async (request, reply) => {
      const merchantId = idIn(request.params, 'Merchant');
      const key = await createKey(context, authorOf(request), merchantId, request.body);
      return respondToChange(reply, 201, 'Key created', key, await confirm(key.revision, key.environment));
    },
  );

  app.get(
    '/merchants/:id/keys',
    {
      schema: { params: idParams, querystring: keysQuery },
      config: {
        operation: { summary: "A merchant's keys, newest first", page: listedKeySchema },
        access: { permission: 'keys:read', merchant: 'id', reads: 'keys' },
      },
    },
    async ({ params, query }) => {
      const paging = pagingOf(query);
      const { id } = await findMerchant(database, idIn(params, 'Merchant'));
      return successPage('Keys retrieved', await listKeys(database, id, query, paging), paging);
    },
  );

  app.get(
    '/keys/:keyId',
    {
      schema: { params: keyParams, querystring: noQuery },
      config: {
        operation: { summary: 'One key', data: listedKeySchema },
        access: { permission: 'keys:read', merchant: 'keyId', reads: 'keys' },
      },
    },
    async ({ params }) => {
      const key = await findKey(database, keyIdIn(params));
      const [listed = toApiKey(key)] = await toListedKeys(database, [key]);
      return success('Key retrieved', listed);
    },
  );

  app.post(
    '/keys/:keyId/revoke',
    {
      schema: { params: keyParams, querystring: noQuery },
      config: {
        operation: { summary: 'Revoke a key permanently', data: withPropagation(apiKeySchema) },
        access: { permission: 'keys:revoke', merchant: 'keyId' },
      },
    },
    async (request, reply) => {
      refuseContent(request.body);
      const { key, revision } = await revokeKey(context, authorOf(request), keyIdIn(request.params));
      return respondToChange(reply, 200, 'Key revoked', key, await confirm(revision, key.environment));
    },
  );

  app.post(
    '/keys/:keyId/reset',
    {
      schema: { params: keyParams, body: resetBody, querystring: noQuery },
      config: {
        operation: { summary: 'Replace a key by a new one', status: 201, data: withPropagation(resetKeySchema) },
        access: { permission: 'keys:create', merchant: 'keyId', isProven: true },
      },
    },
    async (request, reply) => {
      const key = await resetKey(context, authorOf(request), keyIdIn(request.params), request.body);
      return respondToChange(reply, 201, 'Key reset', key, await confirm(key.revision, key.environment));
    },
  );
};

/**
 * Rejects a request body with content. A revocation has no options, so a client that sends options expects an effect
 * that the request does not have.
 */
function refuseContent(body: unknown): void {
  if (body === undefined || body === null) return;
  if (typeof body === 'object' && !Array.isArray(body) && Object.keys(body).length === 0) return;
  throw Refusal.invalid([{ path: '', message: 'The body must be empty' }]);
}
