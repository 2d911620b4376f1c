import { randomUUID } from 'node:crypto';
import type { Selectable } from 'kysely';
import { isUniqueViolation } from '../../database/unique-violation.js';
import type { Tenant } from '../identity.js';
import { ownedBy, ownerColumns } from '../owned-by.js';
import { rangeOf, type Page, type Paging } from '../../rest/paging.js';
import type { ServicesDatabase } from '../services-database.js';
import type { ServicesTables } from '../tables.js';
import type { Customer, CustomerChanges, NewCustomer } from './schema.js';

/** The merchant's customers, newest first. */
export async function listCustomers(
  database: ServicesDatabase,
  tenant: Tenant,
  paging: Paging,
): Promise<Page<Customer>> {
  const { offset, limit } = rangeOf(paging);
  const owned = database.selectFrom('customers').where(ownedBy(tenant));
  const { total } = await owned.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await owned.selectAll().orderBy('sequence', 'desc').offset(offset).limit(limit).execute();
  return { items: rows.map(toCustomer), totalRecords: total };
}

/** One customer of the merchant. */
export async function findCustomer(database: ServicesDatabase, tenant: Tenant, id: string): Promise<Customer | null> {
  const row = await database
    .selectFrom('customers')
    .selectAll()
    .where(ownedBy(tenant))
    .where('id', '=', id)
    .executeTakeFirst();
  return row === undefined ? null : toCustomer(row);
}

/** Adds a customer, unless another one has the email address. */
export function insertCustomer(
  database: ServicesDatabase,
  tenant: Tenant,
  customer: NewCustomer,
  now: number,
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
  now: number,
): Promise<Customer | 'email_taken' | null> {
  return unlessEmailTaken(async () => {
    const row = await database
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
    return row === undefined ? null : toCustomer(row);
  });
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
