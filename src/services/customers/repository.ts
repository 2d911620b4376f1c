import { randomUUID } from 'node:crypto';
import { sql, type Selectable } from '../../database/kysely.js';
import type { Moment } from '../../database/database-clock.js';
import { isUniqueViolation } from '../../database/unique-violation.js';
import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { completeUpTo } from '../creation-order.js';
import type { Tenant } from '../identity.js';
import { ownedBy, ownerColumns } from '../owned-by.js';
import type { ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import type { Customer, CustomerChanges, CustomersQuery, NewCustomer } from './schema.js';

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
    const last = await rowOf(database, tenant, query.up_to.toLowerCase());
    if (last === undefined) throw Refusal.notFound('Customer');
    wanted = wanted.where('sequence', '<=', last.sequence);
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

/** Removes a customer; false where there is none. */
export async function deleteCustomer(database: ServicesDatabase, tenant: Tenant, id: string): Promise<boolean> {
  const result = await database.deleteFrom('customers').where(ownedBy(tenant)).where('id', '=', id).executeTakeFirst();
  return result.numDeletedRows > 0n;
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
