import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import { idempotencyKeyProblems } from '../idempotency/idempotency-key.js';
import { runIdempotent } from '../idempotency/run-idempotent.js';
import { lockListForInsert } from '../services-database.js';
import { recordParams } from '../fields.js';
import { tenantOf } from '../identity.js';
import { idIn, type Routes } from '../routes.js';
import { deleteCustomer, findCustomer, insertCustomer, listCustomers, updateCustomer } from './repository.js';
import {
  created,
  customerChangesBody,
  customerSchema,
  customersQuery,
  newCustomerBody,
  type Customer,
} from './schema.js';

const emailTaken = { 409: 'Another customer has this email address' };

/** Adds the routes of customers. */
export const customerRoutes: Routes = (app, context) => {
  const { database, clock } = context;
  const list = '/dev/customers';
  const one = '/dev/customers/:id';

  app.post(
    list,
    {
      schema: { body: newCustomerBody, querystring: noQuery },
      config: {
        otherProblems: idempotencyKeyProblems,
        operation: {
          ...{ summary: 'Create a customer', message: created },
          ...{ status: 201, data: customerSchema, codes: ['email_taken'] },
          failures: { 404: 'The customer that this Idempotency-Key created was deleted' },
        },
      },
    },
    (request, reply) =>
      runIdempotent(context, request, reply, async (transaction) => {
        const tenant = tenantOf(request);
        await lockListForInsert(transaction, tenant);
        const outcome = await insertCustomer(transaction, tenant, request.body, clock.now());
        return success(created, customerIn(outcome));
      }),
  );

  app.get(
    list,
    {
      schema: { querystring: customersQuery },
      config: {
        operation: { summary: 'Customers, newest first', message: 'Customers retrieved', page: customerSchema },
      },
    },
    async (request) => {
      const paging = pagingOf(request.query);
      const page = await listCustomers(database, tenantOf(request), request.query, paging);
      return successPage('Customers retrieved', page, paging);
    },
  );

  app.get(
    one,
    {
      schema: { params: recordParams, querystring: noQuery },
      config: { operation: { summary: 'One customer', message: 'Customer retrieved', data: customerSchema } },
    },
    async (request) => {
      const id = idIn(request.params, 'Customer');
      return success('Customer retrieved', customerIn(await findCustomer(database, tenantOf(request), id)));
    },
  );

  app.patch(
    one,
    {
      schema: { params: recordParams, body: customerChangesBody, querystring: noQuery },
      config: {
        operation: {
          ...{ summary: 'Change fields of a customer', message: 'Customer updated' },
          ...{ data: customerSchema, failures: emailTaken, codes: ['email_taken'] },
        },
      },
    },
    async (request) => {
      const { params, body } = request;
      const outcome = await updateCustomer(database, tenantOf(request), idIn(params, 'Customer'), body, clock.now());
      return success('Customer updated', customerIn(outcome));
    },
  );

  app.delete(
    one,
    {
      schema: { params: recordParams, querystring: noQuery },
      config: { operation: { summary: 'Delete a customer', message: 'Customer deleted' } },
    },
    async (request) => {
      const isDeleted = await deleteCustomer(
        database,
        tenantOf(request),
        idIn(request.params, 'Customer'),
        clock.now(),
      );
      if (!isDeleted) throw Refusal.notFound('Customer');
      return success('Customer deleted', null);
    },
  );
};

function customerIn(outcome: Customer | 'email_taken' | null): Customer {
  if (outcome === null) throw Refusal.notFound('Customer');
  if (outcome === 'email_taken') throw new Refusal(409, 'A customer with this email already exists', [], 'email_taken');
  return outcome;
}
