import { addMilliseconds } from '../../src/database/dialects.js';
import { purgeDeletedCustomers } from '../../src/services/customers/repository.js';
import { merchantA, merchantB, sandboxOfA, onEachServices } from './services-fixture.js';
import { emptyList } from '../empty-list.js';

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

onEachServices('an email address is unique per merchant and environment, ignoring case', async (t, { call }) => {
  const taken = {
    status: 409,
    body: {
      success: false,
      message: 'A customer with this email already exists',
      data: { code: 'email_taken', errors: [] },
    },
  };
  const withoutPhone = { ...ada, phone: undefined };
  t.equal((await call(merchantA, 'POST', '/dev/customers', { body: ada })).status, 201);
  t.same(await call(merchantA, 'POST', '/dev/customers', { body: { ...ada, email: 'ADA.obi@example.com' } }), taken);
  for (const other of [merchantB, sandboxOfA]) {
    const response = await call(other, 'POST', '/dev/customers', { body: withoutPhone });
    t.match(response, { status: 201, body: { data: { phone: null } } });
  }
  const second = await call(merchantA, 'POST', '/dev/customers', { body: { ...ada, email: 'second@example.com' } });
  const path = `/dev/customers/${(second.body.data as { id: string }).id}`;
  t.same(await call(merchantA, 'PATCH', path, { body: { email: 'Ada.Obi@example.com' } }), taken);
  t.match(
    (await call(merchantA, 'PATCH', path, { body: { email: 'SECOND@example.com' } })).status,
    200,
    'a customer keeps its own address in another case',
  );
});

onEachServices('a customer is not visible to another merchant or in the other environment', async (t, { call }) => {
  const { body } = await call(merchantA, 'POST', '/dev/customers', { body: ada });
  const path = `/dev/customers/${(body.data as { id: string }).id}`;
  const notFound = {
    status: 404,
    body: { success: false, message: 'Customer not found', data: { code: 'not_found', errors: [] } },
  };
  for (const stranger of [merchantB, sandboxOfA]) {
    t.same(await call(stranger, 'GET', path), notFound);
    t.same(await call(stranger, 'PATCH', path, { body: { lastName: 'Stolen' } }), notFound);
    t.same(await call(stranger, 'DELETE', path), notFound);
    t.match((await call(stranger, 'GET', '/dev/customers')).body, { data: emptyList, meta: { total_records: 0 } });
  }
  t.same((await call(merchantA, 'GET', path)).body.data, body.data);
});

onEachServices('each invalid field of a customer is rejected', async (t, { call }) => {
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
    [{ id: 'x' }, 'id'],
  ];
  for (const [changes, path] of cases) {
    const response = await call(merchantA, 'POST', '/dev/customers', { body: { ...ada, ...changes } });
    t.match(response, { status: 422, body: { data: { errors: [{ path }] } } }, JSON.stringify(changes));
  }
  const path = '/dev/customers/00000000-0000-4000-8000-000000000000';
  for (const body of [{}, { email: null }, { firstName: 1 }, { merchant_id: 'merchant_b' }]) {
    t.equal((await call(merchantA, 'PATCH', path, { body })).status, 422, JSON.stringify(body));
  }
  t.equal((await call(merchantA, 'GET', '/dev/customers/1')).status, 404);
});

onEachServices(
  'paging continues from a customer that was deleted in the meantime, only for its merchant',
  async (t, { call, database, clock }) => {
    const ids: string[] = [];
    for (const index of [1, 2, 3, 4, 5]) {
      const { body } = await call(merchantA, 'POST', '/dev/customers', {
        body: { ...ada, email: `ada${index}@example.com` },
      });
      ids.unshift((body.data as { id: string }).id);
    }
    const [newest = '', second = '', ...others] = ids;
    const page = async (number: number, upTo: string) => {
      const { status, body } = await call(merchantA, 'GET', `/dev/customers?per_page=2&page=${number}&up_to=${upTo}`);
      t.equal(status, 200, `page ${number} up to ${upTo}`);
      return { ids: (body.data as { id: string }[]).map(({ id }) => id), total: body.meta?.total_records };
    };
    t.same(await page(1, second), { ids: [second, others[0]], total: 4 });
    await call(merchantA, 'DELETE', `/dev/customers/${second}`);
    const added = { ...ada, email: 'later@example.com' };
    await call(merchantA, 'POST', '/dev/customers', { body: added });
    t.same(
      await page(1, second),
      { ids: others.slice(0, 2), total: 3 },
      'the deleted customer and later ones are omitted',
    );
    t.same(await page(2, second.toUpperCase()), { ids: others.slice(2), total: 3 });
    t.same(await page(1, newest), { ids: [newest, others[0]], total: 4 });

    t.equal(
      (await call(merchantA, 'GET', `/dev/customers/${second}`)).status,
      404,
      'the deleted customer is not found',
    );
    for (const stranger of [merchantB, sandboxOfA]) {
      for (const id of [second, newest]) {
        const response = await call(stranger, 'GET', `/dev/customers?up_to=${id}`);
        t.match(response, { status: 404, body: { message: 'Customer not found', data: { code: 'not_found' } } });
      }
    }
    const kept = await database.selectFrom('deleted_customers').selectAll().execute();
    t.same(Object.keys(kept[0] ?? {}).toSorted(), ['deleted_at', 'environment', 'id', 'merchant_id', 'sequence']);

    t.equal(await purgeDeletedCustomers(database, addMilliseconds(clock.now(), -60_000)), false);
    t.equal(
      (await call(merchantA, 'GET', `/dev/customers?up_to=${second}`)).status,
      200,
      'the id of the deleted customer is still stored',
    );
    await purgeDeletedCustomers(database, clock.now());
    t.equal(
      (await call(merchantA, 'GET', `/dev/customers?up_to=${second}`)).status,
      404,
      'the id of the deleted customer is eventually removed',
    );
  },
);

onEachServices('null in an optional field is equivalent to omitting the field', async (t, { call }) => {
  const { phone, ...withoutPhone } = ada;
  const headers = { 'idempotency-key': 'k' };
  const created = await call(merchantA, 'POST', '/dev/customers', { body: { ...withoutPhone, phone: null }, headers });
  t.match(created, { status: 201, body: { data: { phone: null } } });
  const again = await call(merchantA, 'POST', '/dev/customers', { body: withoutPhone, headers });
  t.same(again, created, 'both bodies count as the same request');
  const other = { body: { ...withoutPhone, phone }, headers };
  t.equal(
    (await call(merchantA, 'POST', '/dev/customers', other)).status,
    422,
    'another body under the same key is rejected',
  );
  for (const field of ['email', 'firstName', 'lastName']) {
    const response = await call(merchantA, 'POST', '/dev/customers', { body: { ...ada, [field]: null } });
    t.match(response, { status: 422, body: { data: { errors: [{ path: field }] } } }, `${field} is required`);
  }
});
