import { merchantA, merchantB, sandboxOfA, onEachServices } from './services-fixture.js';

const ada = { email: 'Ada.Obi@Example.com', firstName: 'Ada', lastName: 'Obi', phone: '+2348012345678' };

onEachServices('a customer is created, read, changed and deleted', async (t, { call }) => {
  const created = await call(merchantA, 'POST', '/dev/customers', { body: ada });
  t.equal(created.status, 201);
  t.match(created.body.data, {
    ...ada,
    email: 'ada.obi@example.com',
    createdAt: '2026-01-15T12:00:01.000Z',
    updatedAt: '2026-01-15T12:00:01.000Z',
  });
  const { id } = created.body.data as { id: string };
  const path = `/dev/customers/${id}`;
  t.same((await call(merchantA, 'GET', path)).body.data, created.body.data);
  t.same((await call(merchantA, 'GET', '/dev/customers')).body.data, [created.body.data]);

  const changed = await call(merchantA, 'PATCH', path, { body: { lastName: 'Eze', phone: null } });
  const expected = {
    ...(created.body.data as object),
    lastName: 'Eze',
    phone: null,
    updatedAt: '2026-01-15T12:00:02.000Z',
  };
  t.same(changed, { status: 200, body: { success: true, message: 'Customer updated', data: expected } });
  t.same((await call(merchantA, 'GET', path)).body.data, expected);

  const headers = { 'content-type': 'application/json' };
  t.same(await call(merchantA, 'DELETE', path, { headers }), {
    status: 200,
    body: { success: true, message: 'Customer deleted', data: null },
  });
  for (const method of ['GET', 'DELETE'] as const) t.equal((await call(merchantA, method, path)).status, 404, method);
  t.equal((await call(merchantA, 'PATCH', path, { body: { lastName: 'Eze' } })).status, 404);
});

onEachServices(
  'an email address belongs to one customer of a merchant and environment, in whatever case',
  async (t, { call }) => {
    const taken = {
      status: 409,
      body: { success: false, message: 'A customer with this email already exists', data: null },
    };
    const withoutPhone = { ...ada, phone: undefined };
    t.equal((await call(merchantA, 'POST', '/dev/customers', { body: ada })).status, 201);
    t.same(await call(merchantA, 'POST', '/dev/customers', { body: { ...ada, email: 'ADA.obi@example.com' } }), taken);
    for (const other of [merchantB, sandboxOfA]) {
      const answer = await call(other, 'POST', '/dev/customers', { body: withoutPhone });
      t.match(answer, { status: 201, body: { data: { phone: null } } });
    }
    const second = await call(merchantA, 'POST', '/dev/customers', { body: { ...ada, email: 'second@example.com' } });
    const path = `/dev/customers/${(second.body.data as { id: string }).id}`;
    t.same(await call(merchantA, 'PATCH', path, { body: { email: 'Ada.Obi@example.com' } }), taken);
    t.match((await call(merchantA, 'PATCH', path, { body: { email: 'SECOND@example.com' } })).status, 200, 'its own');
  },
);

onEachServices(
  'a customer of one merchant is not there for another, or in the other environment',
  async (t, { call }) => {
    const { body } = await call(merchantA, 'POST', '/dev/customers', { body: ada });
    const path = `/dev/customers/${(body.data as { id: string }).id}`;
    const notFound = { status: 404, body: { success: false, message: 'Customer not found', data: null } };
    for (const stranger of [merchantB, sandboxOfA]) {
      t.same(await call(stranger, 'GET', path), notFound);
      t.same(await call(stranger, 'PATCH', path, { body: { lastName: 'Stolen' } }), notFound);
      t.same(await call(stranger, 'DELETE', path), notFound);
      t.match((await call(stranger, 'GET', '/dev/customers')).body, { data: [], meta: { total_records: 0 } });
    }
    t.same((await call(merchantA, 'GET', path)).body.data, body.data);
  },
);

onEachServices('each field of a customer is checked', async (t, { call }) => {
  const cases: [changes: Record<string, unknown>, path: string][] = [
    [{ email: undefined }, 'email'],
    [{ email: 'ada' }, 'email'],
    [{ email: 'ada@localhost' }, 'email'],
    [{ email: 'ada obi@example.com' }, 'email'],
    [{ email: `${'a'.repeat(60)}@${'b.'.repeat(100)}example.com` }, 'email'],
    [{ firstName: '' }, 'firstName'],
    [{ lastName: 'x'.repeat(101) }, 'lastName'],
    [{ lastName: 'a\nb' }, 'lastName'],
    [{ phone: '0800-CALL' }, 'phone'],
    [{ phone: 8012345678 }, 'phone'],
    [{ phone: null }, 'phone'],
    [{ id: 'x' }, 'id'],
  ];
  for (const [changes, path] of cases) {
    const answer = await call(merchantA, 'POST', '/dev/customers', { body: { ...ada, ...changes } });
    t.match(answer, { status: 422, body: { data: { errors: [{ path }] } } }, JSON.stringify(changes));
  }
  const path = '/dev/customers/00000000-0000-4000-8000-000000000000';
  for (const body of [{}, { email: null }, { firstName: 1 }, { merchant_id: 'merchant_b' }]) {
    t.equal((await call(merchantA, 'PATCH', path, { body })).status, 422, JSON.stringify(body));
  }
  t.equal((await call(merchantA, 'GET', '/dev/customers/1')).status, 404);
});
