import { randomUUID } from 'node:crypto';
import { isUniqueViolation } from '../../database/database-error.js';
import type { SqlTime } from '../../database/dialects.js';
import { type Selectable, sql } from '../../database/kysely.js';
import { failure, success } from '../../rest/envelope.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import type { Tenant } from '../assertion-verifier.js';
import { replaceStoredResponse, type ResponseToStore } from '../idempotency/repository.js';
import { lastCompleteNumber, ownedBy, ownerColumns, type ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import { created, type Customer, type CustomerChanges, type CustomersQuery, type NewCustomer } from './schema.js';

const batch = 1000;

/** After a customer was deleted, a repeat of the request that created this customer gets this response. */
const deletedSince: ResponseToStore = {
  status: 404,
  body: failure(
    'The customer that this Idempotency-Key created was deleted: use a different key to create another customer',
    [],
    'not_found',
  ),
};

/**
 * Lists the merchant's customers that match the query, newest first. `search` matches a part of name, email or phone.
 * @throws Refusal 404 if the query parameter `up_to` names an unknown customer
 */
export async function listCustomers(
  database: ServicesDatabase,
  tenant: Tenant,
  query: CustomersQuery,
  paging: Paging,
): Promise<Page<Customer>> {
  let wanted = database.selectFrom('customers').where(ownedBy(tenant));
  if (query.search !== undefined) {
    const pattern = `%${caseFolded(query.search).replaceAll(/[\\%_]/g, '\\$&')}%`;
    wanted = wanted.where(sql<boolean>`search_text like ${pattern} escape '\\'`);
  }
  if (query.up_to !== undefined) {
    const last = await sequenceOf(database, tenant, query.up_to.toLowerCase());
    if (last === null) throw Refusal.notFound('Customer');
    wanted = wanted.where('sequence', '<=', last);
  }
  const complete = await lastCompleteNumber(database, tenant, 'customers');
  if (complete !== null) wanted = wanted.where('sequence', '<=', complete);
  const { offset, limit } = rangeOf(paging);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await wanted.selectAll().orderBy('sequence', 'desc').offset(offset).limit(limit).execute();
  return { items: rows.map(toCustomer), totalRecords: total };
}

/** Finds one customer of the merchant; null if the merchant has no customer with this id. */
export async function findCustomer(database: ServicesDatabase, tenant: Tenant, id: string): Promise<Customer | null> {
  const row = await rowOf(database, tenant, id);
  return row === undefined ? null : toCustomer(row);
}

/**
 * Returns a customer's `sequence`, which is its position in the list; null for an unknown id. Also finds a deleted
 * customer, because a client that is paging through the list can still name it in `up_to`.
 */
async function sequenceOf(database: ServicesDatabase, tenant: Tenant, id: string): Promise<number | null> {
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

/** Inserts a customer; returns `email_taken` if another customer of the merchant has the email address. */
export function insertCustomer(
  database: ServicesDatabase,
  tenant: Tenant,
  customer: NewCustomer,
  now: SqlTime | number,
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

/** Updates a customer; returns `email_taken` if another customer has the email address, null for an unknown id. */
export function updateCustomer(
  database: ServicesDatabase,
  tenant: Tenant,
  id: string,
  changes: CustomerChanges,
  now: SqlTime,
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
      // The update above locks the row until the commit. So the second of two concurrent changes waits for the first,
      // and builds its search text from the fields of both changes.
      await transaction
        .updateTable('customers')
        .set({ search_text: searchTextOf(customer) })
        .where('sequence', '=', row.sequence)
        .execute();
      return customer;
    }),
  );
}

/**
 * Deletes a customer, but keeps its list position for clients that are paging through the list. Also replaces the
 * stored response to the request that created the customer, because this response contains the personal data. Returns
 * false for an unknown id.
 */
export function deleteCustomer(database: ServicesDatabase, tenant: Tenant, id: string, now: SqlTime): Promise<boolean> {
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
    await replaceStoredResponse(transaction, tenant, creationOf(id), deletedSince);
    return true;
  });
}

/** Returns the beginning of the response body that was stored when this customer was created. It ends with the id. */
function creationOf(id: string): string {
  return JSON.stringify(success(created, { id })).slice(0, -'}}'.length);
}

/**
 * Purges up to 1000 list positions of customers that were deleted at `until` or before. Returns true if more could
 * remain.
 */
export async function purgeDeletedCustomers(database: ServicesDatabase, until: SqlTime): Promise<boolean> {
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

/**
 * Builds the text that a search matches. A line feed separates the fields: the text in a query cannot contain a line
 * feed, so no match spans two fields.
 */
function searchTextOf({ firstName, lastName, email, phone }: NewCustomer | Customer): string {
  return [`${firstName} ${lastName}`, email, phone ?? ''].map(caseFolded).join('\n');
}

/** Converts text to lower case and to Unicode NFC, because the same letter can have two encodings. */
function caseFolded(text: string): string {
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
