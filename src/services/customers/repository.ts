import { randomUUID } from 'node:crypto';
import { isUniqueViolation } from '../../database/database-error.js';
import type { Moment } from '../../database/dialects.js';
import { type Selectable, sql } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import type { Tenant } from '../assertion-verifier.js';
import { completeUpTo, ownedBy, ownerColumns, type ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import type { Customer, CustomerChanges, CustomersQuery, NewCustomer } from './schema.js';

const batch = 1000;

/** The merchant's customers that the query names, newest first. A search is for a part of the name, email or phone. */
export async function listCustomers(
  database: ServicesDatabase,
  tenant: Tenant,
  query: CustomersQuery,
  paging: Paging,
): Promise<Page<Customer>> {
  let wanted = database.selectFrom('customers').where(ownedBy(tenant));
  if (query.search !== undefined) {
    const pattern = `%${folded(query.search).replaceAll(/[\\%_]/g, '\\$&')}%`;
    wanted = wanted.where(sql<boolean>`search_text like ${pattern} escape '\\'`);
  }
  if (query.up_to !== undefined) {
    const last = await placeOf(database, tenant, query.up_to.toLowerCase());
    if (last === null) throw Refusal.notFound('Customer');
    wanted = wanted.where('sequence', '<=', last);
  }
  const complete = await completeUpTo(database, tenant, 'customers', 'sequence');
  if (complete !== null) wanted = wanted.where('sequence', '<=', complete);
  const { offset, limit } = rangeOf(paging);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await wanted.selectAll().orderBy('sequence', 'desc').offset(offset).limit(limit).execute();
  return { items: rows.map(toCustomer), totalRecords: total };
}

/** One customer of the merchant. */
export async function findCustomer(database: ServicesDatabase, tenant: Tenant, id: string): Promise<Customer | null> {
  const row = await rowOf(database, tenant, id);
  return row === undefined ? null : toCustomer(row);
}

/** Where in the list a customer stands, or stood: it may be deleted while its list is read page by page. */
async function placeOf(database: ServicesDatabase, tenant: Tenant, id: string): Promise<number | null> {
  const row = await rowOf(database, tenant, id);
  if (row !== undefined) return row.sequence;
  const deleted = await database
    .selectFrom('deleted_customers')
    .select('sequence')
    .where(ownedBy(tenant))
    .where('id', '=', id)
    .executeTakeFirst();
  return deleted?.sequence ?? null;
}

function rowOf(database: ServicesDatabase, tenant: Tenant, id: string) {
  return database.selectFrom('customers').selectAll().where(ownedBy(tenant)).where('id', '=', id).executeTakeFirst();
}

/** Adds a customer, unless another one has the email address. */
export function insertCustomer(
  database: ServicesDatabase,
  tenant: Tenant,
  customer: NewCustomer,
  now: Moment | number,
): Promise<Customer | 'email_taken'> {
  return unlessEmailTaken(async () => {
    const row = await database
      .insertInto('customers')
      .values({
        ...ownerColumns(tenant),
        id: randomUUID(),
        email: customer.email.toLowerCase(),
        first_name: customer.firstName,
        last_name: customer.lastName,
        phone: customer.phone ?? null,
        search_text: searchTextOf(customer),
        created_at: now,
        updated_at: now,
      })
      .returningAll()
      .executeTakeFirstOrThrow();
    return toCustomer(row);
  });
}

/** Changes a customer, unless another one has the email address. */
export function updateCustomer(
  database: ServicesDatabase,
  tenant: Tenant,
  id: string,
  changes: CustomerChanges,
  now: Moment,
): Promise<Customer | 'email_taken' | null> {
  return unlessEmailTaken(() =>
    database.transaction().execute(async (transaction) => {
      const row = await transaction
        .updateTable('customers')
        .set({
          ...(changes.email === undefined ? {} : { email: changes.email.toLowerCase() }),
          ...(changes.firstName === undefined ? {} : { first_name: changes.firstName }),
          ...(changes.lastName === undefined ? {} : { last_name: changes.lastName }),
          ...(changes.phone === undefined ? {} : { phone: changes.phone }),
          updated_at: now,
        })
        .where(ownedBy(tenant))
        .where('id', '=', id)
        .returningAll()
        .executeTakeFirst();
      if (row === undefined) return null;
      const customer = toCustomer(row);
      // The row is locked by now, so that of two changes at once each sees the other's.
      await transaction
        .updateTable('customers')
        .set({ search_text: searchTextOf(customer) })
        .where('sequence', '=', row.sequence)
        .execute();
      return customer;
    }),
  );
}

/** Removes a customer but for its place in the list; false where there is none. */
export function deleteCustomer(database: ServicesDatabase, tenant: Tenant, id: string, now: Moment): Promise<boolean> {
  return database.transaction().execute(async (transaction) => {
    const row = await transaction
      .deleteFrom('customers')
      .where(ownedBy(tenant))
      .where('id', '=', id)
      .returning('sequence')
      .executeTakeFirst();
    if (row === undefined) return false;
    await transaction
      .insertInto('deleted_customers')
      .values({ ...ownerColumns(tenant), id, sequence: row.sequence, deleted_at: now })
      .execute();
    return true;
  });
}

/** Forgets where customers stood that were deleted then or before, some at a time; true where there may be more. */
export async function forgetDeletedCustomers(database: ServicesDatabase, until: Moment): Promise<boolean> {
  const old = database.selectFrom('deleted_customers').select('id').where('deleted_at', '<=', until).limit(batch);
  const { numDeletedRows } = await database.deleteFrom('deleted_customers').where('id', 'in', old).executeTakeFirst();
  return numDeletedRows >= BigInt(batch);
}

async function unlessEmailTaken<Result>(write: () => Promise<Result>): Promise<Result | 'email_taken'> {
  try {
    return await write();
  } catch (error) {
    if (isUniqueViolation(error)) return 'email_taken';
    throw error;
  }
}

/** Fields are apart by what no search can hold, so that none is found across two of them. */
function searchTextOf({ firstName, lastName, email, phone }: NewCustomer | Customer): string {
  return [`${firstName} ${lastName}`, email, phone ?? ''].map(folded).join('\n');
}

/** In lower case, and composed: the same letters may be written in two ways. */
function folded(text: string): string {
  return text.normalize('NFC').toLowerCase();
}

function toCustomer(row: Selectable<ServicesTables['customers']>): Customer {
  return {
    id: row.id,
    email: row.email,
    firstName: row.first_name,
    lastName: row.last_name,
    phone: row.phone,
    createdAt: new Date(row.created_at).toISOString(),
    updatedAt: new Date(row.updated_at).toISOString(),
  };
}
