import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { NoteSigner } from '../../src/evidence/signed-note.js';
import { EventCheckpoints } from '../../src/registry/events/checkpoints.js';
import { deleteEvents } from '../../src/registry/events/repository.js';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { ran } from '../cli/ran.js';
import { createPostgresDatabase, onServer, postgresAlone } from '../database/each-database.js';
import { registryFixture } from '../registry/registry-fixture.js';
import type { NewKey } from '../registry/registry-fixture.js';
import type { Merchant } from '../../src/registry/merchants/schema.js';

/** Creates a PostgreSQL user without any rights, and returns its name. The user is dropped after the test. */
async function createUser(t: Test): Promise<string> {
  const user = `mg_test_${randomBytes(8).toString('hex')}`;
  await onServer(`create user ${user} password 'a password of the tests'`);
  t.teardown(() => onServer(`drop user if exists ${user}`));
  return user;
}

function asUser(url: string, user: string): string {
  const other = new URL(url);
  [other.username, other.password] = [user, 'a password of the tests'];
  return other.href;
}

/** Runs `database migrate registry` as an operator does. */
function migrate(t: Test, url: string, ...more: string[]) {
  const file = `${t.testdir()}/gateway.yaml`;
  writeFileSync(file, `registry: { database: { url: '${url}' } }\n`);
  return ran('database', 'migrate', 'registry', '--config', file, ...more);
}

t.test('the user of a running registry can add events, but not change or delete them', postgresAlone, async (t) => {
  const user = await createUser(t); // before the database: teardowns run in reverse order, and the user is dropped last
  const url = await createPostgresDatabase(t);
  t.same(await migrate(t, url, '--create', '--grant-to', user, '--json'), {
    ...{ status: 0, err: '' },
    out: `${JSON.stringify({ part: 'registry', upToDate: true, grantedTo: user })}\n`,
  });
  const signer = NoteSigner.inMemory('registry.example');
  const { call, database, time } = await registryFixture(t, asUser(url, user), { witness: signer });
  const merchant = await call<Merchant>('POST', '/merchants', { body: { name: 'Shop' } });
  const key = await call<NewKey>('POST', `/merchants/${merchant.body.data.id}/keys`, {
    body: { environment: 'test' },
  });
  t.equal((await call('POST', `/keys/${key.body.data.keyId}/revoke`)).status, 200);
  await new EventCheckpoints({ database, signer, clock: time, timers: time }).sign();
  const count = async (): Promise<number> => (await database.selectFrom('events').select('seq').execute()).length;
  t.equal(await count(), 3);

  for (const statement of [
    sql`update events set actor = 'eve'`,
    sql`delete from events`,
    sql`truncate events`,
    sql`update event_chain set hash = ''`,
    sql`delete from event_chain`,
    sql`update event_checkpoints set note = ''`,
    sql`delete from event_checkpoints`,
    sql`update event_tail set pruned_position = 3`,
    sql`update event_tail set unchained_seq = 3`,
    sql`delete from event_tail`,
    sql`alter table events disable trigger all`,
    sql`drop trigger events_only_add on events`,
    sql`create or replace function keep_events() returns trigger language plpgsql as $$ begin return old; end $$`,
    sql`delete from kysely_migration`,
    sql`create table forged (id int)`,
    sql`set session_replication_role = replica`,
  ])
    await t.rejects(statement.execute(database), { code: '42501' });
  t.equal(await count(), 3);
  for (const [position, hash] of [
    [3, 'f'.repeat(64)],
    [1_000_000, ''],
  ] as const)
    await t.rejects(sql`select prune_events('{}'::bigint[], ${position}, ${hash}, 0, null)`.execute(database), {
      message: /the chain of events has no such position/,
    });
  const behind = sql`select prune_events(array(select seq from events), 0, '', 0, null)`;
  await t.rejects(behind.execute(database), { message: /events can only be added/ }, 'position 0 deletes no event');
  t.equal(await count(), 3);

  time.advance(86_400_000);
  await call('POST', '/merchants', { body: { name: 'Other' } });
  const deleted = await deleteEvents(database, { after: 0, until: time.now() - 1000, now: time.now(), signer });
  t.equal(deleted.forgotten, 3, 'retention deletes with the rights of the owner');
  t.equal(await count(), 1);
});

t.test('rights are granted only to a user that cannot change events anyway', postgresAlone, async (t) => {
  const [user, member, writer, creator] = await Promise.all([1, 2, 3, 4].map(() => createUser(t)));
  if (user === undefined || member === undefined) throw new Error('there are four users');
  const url = await createPostgresDatabase(t);
  const owner = decodeURIComponent(new URL(url).username);
  t.match(await migrate(t, url, '--create', '--grant-to', 'nobody_of_that_name'), {
    status: 1,
    err: /PostgreSQL has no user nobody_of_that_name/,
  });
  t.match(await migrate(t, url, '--grant-to', owner), {
    status: 1,
    err: /is a superuser, may create roles, or owns the tables/,
  });
  await onServer(`grant ${owner} to ${member}`);
  t.match(await migrate(t, url, '--grant-to', member), {
    status: 1,
    err: /is a superuser, may create roles, or owns the tables/,
  });
  await onServer(`grant pg_write_all_data to ${writer}`);
  t.match(await migrate(t, url, '--grant-to', String(writer)), {
    status: 1,
    err: /can change events, because it has this right through a role or through a grant to PUBLIC/,
  });
  await onServer(`alter role ${creator} createrole`);
  t.match(await migrate(t, url, '--grant-to', String(creator)), { status: 1, err: /may create roles/ });
  t.match(await migrate(t, `sqlite:${t.testdir()}/registry.db`, '--create', '--grant-to', user), {
    status: 1,
    err: /Only PostgreSQL has users/,
  });
});

t.test('a user without the right to migrate names the next step', postgresAlone, async (t) => {
  const user = await createUser(t);
  const url = await createPostgresDatabase(t);
  await migrate(t, url, '--create', '--grant-to', user);
  const owner = await openRegistryDatabase({ url, generation: 'g' });
  await sql`delete from kysely_migration where name >= '0019-event-rights'`.execute(owner);
  await owner.destroy();
  await t.rejects(openRegistryDatabase({ url: asUser(url, user), generation: 'g' }), {
    message:
      /permission denied.* Run "merchant-gateway database migrate" with the URL of the user that owns the tables/,
  });
});
