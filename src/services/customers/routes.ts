import { success, successPage } from '../../rest/envelope.js';
import { tenantOf } from '../identity.js';
import { pagingOf, pagingQuery } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import { idIn, type Routes } from '../routes.js';
import { deleteCustomer, findCustomer, insertCustomer, listCustomers, updateCustomer } from './repository.js';
import { customerChangesBody, newCustomerBody, type Customer } from './schema.js';

/** The merchant's customers. */
export const customerRoutes: Routes = (app, { database, clock }) => {
  const list = '/dev/customers';
  const one = '/dev/customers/:id';

  app.post(list, { schema: { body: newCustomerBody, querystring: noQuery } }, async (request, reply) => {
    const outcome = await insertCustomer(database, tenantOf(request), request.body, clock.now());
    reply.code(201);
    return success('Customer created', customerIn(outcome));
  });

  app.get(list, { schema: { querystring: pagingQuery } }, async (request) => {
    const paging = pagingOf(request.query);
    return successPage('Customers retrieved', await listCustomers(database, tenantOf(request), paging), paging);
  });

  app.get(one, { schema: { params: idParams, querystring: noQuery } }, async (request) => {
    return success(
      'Customer retrieved',
      customerIn(await findCustomer(database, tenantOf(request), idIn(request.params, 'Customer'))),
    );
  });

  app.patch(one, { schema: { params: idParams, body: customerChangesBody, querystring: noQuery } }, async (request) => {
    const { params, body } = request;
    const outcome = await updateCustomer(database, tenantOf(request), idIn(params, 'Customer'), body, clock.now());
    return success('Customer updated', customerIn(outcome));
  });

  app.delete(one, { schema: { params: idParams, querystring: noQuery } }, async (request) => {
    if (!(await deleteCustomer(database, tenantOf(request), idIn(request.params, 'Customer'))))
      throw Refusal.notFound('Customer');
    return success('Customer deleted', null);
  });
};

function customerIn(outcome: Customer | 'email_taken' | null): Customer {
  if (outcome === null) throw Refusal.notFound('Customer');
  if (outcome === 'email_taken') {
    throw new Refusal(409, 'A customer with this email already exists');
  }
  return outcome;
}
