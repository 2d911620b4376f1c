import type { FastifyReply, FastifyRequest } from 'fastify';
import { success } from '../../rest/envelope.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { dayMilliseconds, hourMilliseconds } from '../../usage/batch.js';
import { type Access } from '../administrators/access.js';
import { authorOf } from '../administrators/request-author.js';
import { type GivenPeriod, idIn } from '../fields.js';
import { findKey } from '../keys/repository.js';
import { findMerchant } from '../merchants/repository.js';
import type { Routes } from '../routes.js';
import { judgeAllowlist } from './allowlist-verdict.js';
import { lastUsesOf } from './last-use.js';
import { givenTimes, type Period, periodOf, respondWithList } from './list-response.js';
import { forgetUsage } from './old-usage.js';
import { listHours } from './read-hours.js';
import { type DaysFilter, listAddresses, listAgents, listGateways, listHosts } from './read-lists.js';
import { listRefusals } from './refusals.js';
import { addressesQuery, daysQuery, gatewaysQuery, keyUsageQuery, merchantAddressesQuery } from './schema.js';
import { merchantUsageQuery, refusalsQuery, verdictQuery } from './schema.js';
import { addressRowSchema, agentRowSchema, forgottenSchema, gatewayRowSchema, hostRowSchema } from './schema.js';
import { lastUseSchema, refusalSchema, usageRowSchema, verdictSchema } from './schema.js';

const keyParams = Type.Object({ keyId: Type.String() });

const ofMerchant: Access = { permission: 'usage:read', merchant: 'id', reads: 'usage' };
const ofKey: Access = { permission: 'usage:read', merchant: 'keyId', reads: 'usage' };
/** Access to usage of all merchants. `merchant` is omitted, so that members of one merchant get a 404. */
const ofAll: Access = { permission: 'usage:read' };

/** Whose requests to list: those of a merchant or of one key. An empty merchant id: requests without a known key. */
type Owner = Omit<DaysFilter, keyof Period>;

/**
 * Adds the routes that show the usage (requests that gateways have counted), and the route that deletes a merchant's
 * usage.
 */
export const usageRoutes: Routes = (app, context) => {
  const { database, clock } = context;
  const merchantIn = async (params: Static<typeof idParams>): Promise<string> =>
    (await findMerchant(database, idIn(params, 'Merchant'))).id;
  const keyIn = async ({ keyId }: Static<typeof keyParams>): Promise<{ merchantId: string; key: string }> => {
    const found = await findKey(database, idIn({ id: keyId }, 'Key'));
    return { merchantId: found.merchant_id, key: found.key_id };
  };
  const hoursIn = (query: GivenPeriod): Period => periodOf(query, clock.now(), hourMilliseconds);
  const daysIn = (query: GivenPeriod): Period => periodOf(query, clock.now(), dayMilliseconds);
  /** Returns the period of a list of requests: whole days with `by=day`, otherwise whole hours. */
  const periodBy = (query: GivenPeriod & { readonly by?: string | undefined }): Period =>
    query.by === 'day' ? daysIn(query) : hoursIn(query);
  const sendHours = (reply: FastifyReply, query: Static<typeof merchantUsageQuery>, owner: Owner) => {
    const { code, environment, by = 'hour' } = query;
    const filter = { ...owner, ...periodBy(query), code, environment };
    return respondWithList(reply, { query, message: 'Usage retrieved', schema: usageRowSchema }, (paging) =>
      listHours(database, filter, by, paging),
    );
  };
  const sendAddresses = (reply: FastifyReply, query: Static<typeof addressesQuery>, owner: Owner) => {
    const filter = { ...owner, ...daysIn(query), address: query.address };
    return respondWithList(reply, { query, message: 'Addresses retrieved', schema: addressRowSchema }, (paging) =>
      listAddresses(database, filter, paging),
    );
  };

  app.get(
    '/merchants/:id/usage',
    {
      schema: { params: idParams, querystring: merchantUsageQuery },
      config: {
        operation: { summary: "A merchant's requests by hour, day, key or code", page: usageRowSchema },
        access: ofMerchant,
      },
    },
    async ({ params, query }, reply) =>
      sendHours(reply, query, { merchantId: await merchantIn(params), key: query.key }),
  );

  app.delete(
    '/merchants/:id/usage',
    {
      schema: { params: idParams, querystring: noQuery },
      config: {
        operation: { summary: 'Delete all request counts and refusals of a merchant', data: forgottenSchema },
        access: { permission: 'usage:forget' },
      },
    },
    async (request: FastifyRequest<{ Params: Static<typeof idParams> }>) => {
      const rows = await forgetUsage(context, authorOf(request), await merchantIn(request.params));
      return success('Usage deleted', { rows });
    },
  );

  app.get(
    '/merchants/:id/refusals',
    {
      schema: { params: idParams, querystring: refusalsQuery },
      config: {
        operation: { summary: "A merchant's refused requests, newest first", page: refusalSchema },
        access: ofMerchant,
      },
    },
    async ({ params, query }, reply) => {
      const { key, code, address, environment, requestId, after } = query;
      const filter = {
        ...{ merchantId: await merchantIn(params), key, code, address, environment, requestId, ...givenTimes(query) },
        after: after === undefined ? undefined : Number(after),
      };
      return respondWithList(reply, { query, message: 'Refusals retrieved', schema: refusalSchema }, (paging) =>
        listRefusals(database, filter, paging),
      );
    },
  );

  app.get(
    '/merchants/:id/addresses',
    {
      schema: { params: idParams, querystring: merchantAddressesQuery },
      config: {
        operation: { summary: "The client addresses of a merchant's requests, by day", page: addressRowSchema },
        access: ofMerchant,
      },
    },
    async ({ params, query }, reply) =>
      sendAddresses(reply, query, { merchantId: await merchantIn(params), key: query.key }),
  );

  app.get(
    '/merchants/:id/addresses/verdict',
    {
      schema: { params: idParams, querystring: verdictQuery },
      config: {
        operation: { summary: 'Which accepted requests an IP allowlist would have refused', data: verdictSchema },
        access: ofMerchant,
      },
    },
    async ({ params, query }) => {
      const { key, allow } = query;
      const filter = { merchantId: await merchantIn(params), ...daysIn(query), key };
      return success('Allowlist judged', await judgeAllowlist(database, filter, allow));
    },
  );

  app.get(
    '/merchants/:id/hosts',
    {
      schema: { params: idParams, querystring: daysQuery },
      config: {
        operation: {
          summary: "The hosts in Origin or Referer of a merchant's requests, by day",
          page: hostRowSchema,
        },
        access: ofMerchant,
      },
    },
    async ({ params, query }, reply) => {
      const filter = { merchantId: await merchantIn(params), ...daysIn(query) };
      return respondWithList(reply, { query, message: 'Hosts retrieved', schema: hostRowSchema }, (paging) =>
        listHosts(database, filter, paging),
      );
    },
  );

  app.get(
    '/keys/:keyId/usage',
    {
      schema: { params: keyParams, querystring: keyUsageQuery },
      config: {
        operation: { summary: 'The requests with a key, by hour, day or code', page: usageRowSchema },
        access: ofKey,
      },
    },
    async ({ params, query }, reply) => sendHours(reply, query, await keyIn(params)),
  );

  app.get(
    '/keys/:keyId/last-use',
    {
      schema: { params: keyParams, querystring: noQuery },
      config: { operation: { summary: 'The last accepted request of a key', data: lastUseSchema }, access: ofKey },
    },
    async ({ params }) => {
      const { merchantId, key } = await keyIn(params);
      const lastUse = (await lastUsesOf(database, [key])).get(key) ?? null;
      return success('Last use retrieved', { keyId: key, merchantId, lastUse });
    },
  );

  app.get(
    '/keys/:keyId/addresses',
    {
      schema: { params: keyParams, querystring: addressesQuery },
      config: {
        operation: { summary: 'The client addresses from which a key was used, by day', page: addressRowSchema },
        access: ofKey,
      },
    },
    async ({ params, query }, reply) => sendAddresses(reply, query, await keyIn(params)),
  );

  app.get(
    '/keys/:keyId/agents',
    {
      schema: { params: keyParams, querystring: daysQuery },
      config: {
        operation: { summary: 'The User-Agents of the accepted requests with a key, by day', page: agentRowSchema },
        access: ofKey,
      },
    },
    async ({ params, query }, reply) => {
      const filter = { ...(await keyIn(params)), ...daysIn(query) };
      return respondWithList(reply, { query, message: 'Agents retrieved', schema: agentRowSchema }, (paging) =>
        listAgents(database, filter, paging),
      );
    },
  );

  app.get(
    '/usage/unknown',
    {
      schema: { querystring: addressesQuery },
      config: {
        operation: { summary: 'The client addresses of requests without a known key, by day', page: addressRowSchema },
        access: ofAll,
      },
    },
    ({ query }, reply) => sendAddresses(reply, query, { merchantId: '' }),
  );

  app.get(
    '/usage/unknown/requests',
    {
      schema: { querystring: keyUsageQuery },
      config: {
        operation: { summary: 'The requests without a known key, by hour, day or code', page: usageRowSchema },
        access: ofAll,
      },
    },
    ({ query }, reply) => sendHours(reply, query, { merchantId: '' }),
  );

  app.get(
    '/usage/gateways',
    {
      schema: { querystring: gatewaysQuery },
      config: {
        operation: {
          summary: 'The gateway processes, and whether they have sent all their request counts',
          page: gatewayRowSchema,
        },
        access: ofAll,
      },
    },
    async ({ query }, reply) => {
      const filter = { environment: query.environment, state: query.state, now: clock.now() };
      return respondWithList(reply, { query, message: 'Gateways retrieved', schema: gatewayRowSchema }, (paging) =>
        listGateways(database, filter, paging),
      );
    },
  );
};
