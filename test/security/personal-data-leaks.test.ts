import { sql } from 'kysely';
import { merchantA, onEachServices } from '../services/services-fixture.js';

// Attacks of somebody who reads the database of the services, or who has a merchant's key and an old Idempotency-Key.

const ada = { email: 'ada.obi@example.com', firstName: 'Adaeze', lastName: 'Obi', phone: '+2348012345678' };

onEachServices(
  'personal data: a deleted customer is in no table, and no repeated request returns the data',
  async (t, { call, database }) => {
    const create = (key: string, body: object) =>
      call(merchantA, 'POST', '/dev/customers', { body, headers: { 'idempotency-key': key } });
    const created = await create('k', ada);
    const other = await create('other', { ...ada, email: 'other@example.com' });
    const { id } = created.body.data as { id: string };
    t.match(await create('k', ada), { status: 201, body: { data: { id, ...ada } } });
    const changed = { firstName: 'Ada', email: 'new@example.com' };
    await call(merchantA, 'PATCH', `/dev/customers/${id}`, { body: changed });
    t.equal((await call(merchantA, 'DELETE', `/dev/customers/${id}`)).status, 200);

    for (const table of ['customers', 'deleted_customers', 'answers']) {
      const { rows } = await sql`select * from ${sql.table(table)}`.execute(database);
      for (const text of [ada.email, changed.email]) t.notMatch(JSON.stringify(rows), text, `${table}: ${text}`);
    }
    t.match(await create('k', ada), {
      status: 404,
      body: { message: /was deleted: use a different key/, data: { code: 'not_found', errors: [] } },
    });
    t.equal((await create('k', { ...ada, firstName: 'Eve' })).status, 422, 'the key stays used');
    t.same(await create('other', { ...ada, email: 'other@example.com' }), other, 'another customer is unaffected');
    t.match((await call(merchantA, 'GET', '/dev/customers')).body, { meta: { total_records: 1 } });
    t.equal((await create('next', ada)).status, 201);
  },
);
