import { parseIpAddress } from '../../policy/ip-address.js';
import { success } from '../../rest/envelope.js';
import Type from '../../typebox/typebox.js';
import { lacksReason } from '../administrators/refused-right.js';
import { authorOf, callerOf } from '../administrators/request-author.js';
import { type Permission, permits } from '../administrators/roles.js';
import { hasPart } from '../fields.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Routes } from '../routes.js';
import { storedForms } from '../usage/checked-batch.js';
import { type Found, foundSchema, searchQuery } from './schema.js';

/** Maximum number of results of each kind. */
const mostOfKind = 5;

/**
 * Adds the route that finds records by an id, a name or an IP address. The response omits records that the caller must
 * not see, or sees only with a reason that the request lacks.
 */
export const searchRoutes: Routes = (app, context) => {
  app.get(
    '/search',
    {
      schema: { querystring: searchQuery },
      config: {
        operation: {
          summary: `Search by name, id or IP address: at most ${mostOfKind} results of each kind`,
          data: Type.Array(foundSchema),
        },
        access: { permission: 'merchants:read', merchant: 'list', reads: 'usage' },
      },
    },
    async (request) => {
      const { roles, merchantId } = callerOf(request);
      const author = authorOf(request);
      const text = request.query.q.trim();
      const found: Found[] = [];
      for (const { permission, find } of finders) {
        const isAllowed = permits(roles, permission) && !lacksReason(context, author, permission);
        if (text !== '' && isAllowed) found.push(...(await find(context.database, text, merchantId)));
      }
      return success('Search done', found);
    },
  );
};

type Finder = (database: RegistryDatabase, text: string, memberOf: string | null) => Promise<Found[]>;

/** The search functions. Each query uses an index, except the search for a part of a merchant's name. */
const finders: readonly { readonly permission: Permission; readonly find: Finder }[] = [
  { permission: 'merchants:read', find: findMerchants },
  { permission: 'keys:read', find: findKeys },
  { permission: 'usage:read', find: findRefusals },
  { permission: 'events:read', find: findEvents },
  { permission: 'usage:read', find: findAddresses },
  { permission: 'administrators:read', find: findAdministrators },
];

async function findMerchants(database: RegistryDatabase, text: string, memberOf: string | null): Promise<Found[]> {
  let wanted = database.selectFrom('merchants').select(['id', 'name']);
  wanted = wanted.where((it) => it.or([it('id', '=', text), hasPart('name', text)]));
  if (memberOf !== null) wanted = wanted.where('id', '=', memberOf);
  const rows = await wanted.orderBy('created_revision', 'desc').orderBy('id').limit(mostOfKind).execute();
  return rows.map(({ id, name }) => ({ kind: 'merchant', id, name, merchantId: id }));
}

async function findKeys(database: RegistryDatabase, text: string, memberOf: string | null): Promise<Found[]> {
  let wanted = database.selectFrom('api_keys').select(['key_id', 'label', 'merchant_id']).where('key_id', '=', text);
  if (memberOf !== null) wanted = wanted.where('merchant_id', '=', memberOf);
  const rows = await wanted.execute();
  return rows.map((row) => ({ kind: 'key', id: row.key_id, name: row.label, merchantId: row.merchant_id }));
}

async function findRefusals(database: RegistryDatabase, text: string, memberOf: string | null): Promise<Found[]> {
  let wanted = database.selectFrom('usage_refusals').select(['code', 'merchant_id']).where('request_id', '=', text);
  if (memberOf !== null) wanted = wanted.where('merchant_id', '=', memberOf);
  const rows = await wanted.orderBy('seq').limit(mostOfKind).execute();
  return rows.map((row) => ({ kind: 'refusal', id: text, name: row.code, merchantId: row.merchant_id }));
}

async function findEvents(database: RegistryDatabase, text: string, memberOf: string | null): Promise<Found[]> {
  let wanted = database.selectFrom('events').select(['action', 'merchant_id']).where('request_id', '=', text);
  if (memberOf !== null) wanted = wanted.where('merchant_id', '=', memberOf);
  const rows = await wanted.orderBy('seq').limit(mostOfKind).execute();
  return rows.map((row) => ({ kind: 'event', id: text, name: row.action, merchantId: row.merchant_id || null }));
}

async function findAddresses(database: RegistryDatabase, text: string, memberOf: string | null): Promise<Found[]> {
  if (parseIpAddress(text) === null) return [];
  let wanted = database.selectFrom('usage_addresses').select(['merchant_id', 'address']);
  wanted = wanted.where('address', 'in', storedForms(text));
  // Omits requests with an unknown key: they belong to no merchant, so their merchant id is empty.
  wanted = memberOf === null ? wanted.where('merchant_id', '!=', '') : wanted.where('merchant_id', '=', memberOf);
  const grouped = wanted.groupBy(['merchant_id', 'address']).orderBy('merchant_id').orderBy('address');
  const rows = await grouped.limit(mostOfKind).execute();
  return rows.map((row) => ({ kind: 'address', id: row.address, name: null, merchantId: row.merchant_id }));
}

async function findAdministrators(database: RegistryDatabase, text: string): Promise<Found[]> {
  const wanted = database.selectFrom('administrators').select(['id', 'name', 'merchant_id']);
  const rows = await wanted.where((it) => it.or([it('id', '=', text), it('name', '=', text)])).execute();
  return rows.map((row) => ({ kind: 'administrator', id: row.id, name: row.name, merchantId: row.merchant_id }));
}
