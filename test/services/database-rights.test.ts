import { randomBytes } from 'node:crypto';
import t from 'tap';
import { sql } from '../../src/database/kysely.js';
import { checkServicesDatabase, openServicesDatabase } from '../../src/services/services-database.js';
import { createPostgresDatabase, onServer, postgresAlone } from '../database/each-database.js';
import { merchantA, servicesFixture } from './services-fixture.js';

t.test('PostgreSQL: a user that may not read sequences gets no empty lists', postgresAlone, async (t) => {
  const user = `mg_test_${randomBytes(8).toString('hex')}`;
  await onServer(`create user ${user} password 'a password of the tests'`);
  t.teardown(() => onServer(`drop user if exists ${user}`)); // can be dropped only after the database
  const url = new URL(await createPostgresDatabase(t));
  const owner = await openServicesDatabase({ url: url.href });
  t.teardown(() => owner.destroy());
  await sql.raw(`grant select, insert, update, delete on all tables in schema public to ${user}`).execute(owner);
  [url.username, url.password] = [user, 'a password of the tests'];
  const options = { url: url.href, existingOf: 'services' } as const;
  const message = new RegExp(`run: grant select on all sequences in schema public to ${user}$`);
  await t.rejects(openServicesDatabase(options), { name: 'DatabaseError', message });
  await t.rejects(checkServicesDatabase(options), { name: 'DatabaseError', message });

  await sql.raw(`grant select on all sequences in schema public to ${user}`).execute(owner);
  await checkServicesDatabase(options);
  const { call, logged } = await servicesFixture(t, { url: url.href });
  const ada = { email: 'ada@example.com', firstName: 'Ada', lastName: 'Obi' };
  t.equal((await call(merchantA, 'POST', '/dev/customers', { body: ada })).status, 201);
  const lists = ['/transactions', '/dev/payouts', '/dev/customers'];
  for (const path of lists) t.equal((await call(merchantA, 'GET', path)).status, 200, path);
  t.match((await call(merchantA, 'GET', '/dev/customers')).body, { meta: { total_records: 1 } });

  await sql.raw(`revoke select on all sequences in schema public from ${user}`).execute(owner);
  for (const path of lists) t.equal((await call(merchantA, 'GET', path)).status, 503, path);
  t.match(logged[0], { details: { err: message } });
});
