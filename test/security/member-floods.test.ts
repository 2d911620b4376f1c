import type { Test } from 'tap';
import { sql } from '../../src/database/kysely.js';
import { registryAuthor } from '../../src/registry/events/author.js';
import { recordEvents } from '../../src/registry/events/repository.js';
import type { Merchant } from '../../src/registry/merchants/schema.js';
import { consoleFixture } from '../console/console-fixture.js';
import { onEachDatabase } from '../database/each-database.js';

// A full disk of the registry, or a full Redis, stops the revocations of all merchants. Regression: one stolen token of
// a member of one merchant was enough for that. Each change of a long allowlist added half a megabyte for good, and
// nothing limited changes.

const hour = 3_600_000;

/**
 * A registry with two merchants: `ada` and `bea` are members of `own`, and `cleo` is a member of `other`. `send` asks
 * one process of the registry, and `call` another one on the same database.
 */
async function fixture(t: Test, url: string) {
  const registry = await consoleFixture(t, url);
  const { app, createMerchant, createPerson } = registry;
  const [own, other] = [await createMerchant(), await createMerchant({ name: 'Bea Traders' })];
  const people = {
    ada: await createPerson('ada', ['merchant-admin'], own.id),
    bea: await createPerson('bea', ['merchant-admin'], own.id),
    cleo: await createPerson('cleo', ['merchant-admin'], other.id),
  };
  const send = async ({ token }: { readonly token: string }, method: 'PATCH' | 'POST', path: string, body?: object) => {
    const response = await app.inject({
      ...{ method, url: path },
      headers: {
        authorization: `Bearer ${token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { payload: JSON.stringify(body) }),
    });
    const { message, data } = response.json<{
      message: string;
      data: { readonly code?: string; readonly id?: string; readonly keyId?: string } | null;
    }>();
    return {
      status: response.statusCode,
      wait: response.headers['retry-after'],
      code: data?.code,
      id: data?.id,
      keyId: data?.keyId,
      message,
    };
  };
  const setHosts = (who: { readonly token: string }, { id }: Merchant, hosts: readonly string[]) =>
    send(who, 'PATCH', `/merchants/${id}`, { originAllowlist: hosts });
  return { ...registry, ...people, own, other, send, setHosts };
}

onEachDatabase('a member who can only read takes no changes away from the others', async (t, url) => {
  const { ada, createKey, createPerson, own, send, setHosts } = await fixture(t, url);
  const { keyId } = await createKey(own.id);
  const viewer = await createPerson('vic', ['merchant-viewer'], own.id);
  for (let index = 0; index < 50; index += 1) {
    const { status, id } = await send(viewer, 'POST', '/tokens', { name: `token ${index}` });
    t.equal(status, 201);
    t.equal((await send(viewer, 'POST', `/tokens/${id}/revoke`)).status, 200);
  }
  const refused = { status: 429, wait: '3600', code: 'too_many_changes' };
  t.match(await send(viewer, 'POST', '/tokens', { name: 'another' }), refused);
  t.match(await send(viewer, 'POST', '/console-links', {}), refused);
  t.equal((await setHosts(ada, own, ['shop.example'])).status, 200);
  t.equal((await send(ada, 'POST', `/keys/${keyId}/reset`, {})).status, 201);
  t.equal((await send(ada, 'POST', '/tokens', { name: 'another' })).status, 201);
});

onEachDatabase('a merchant-admin invites more than 50 members within an hour, and each link counts', async (t, url) => {
  const { ada, bea, own, send, setHosts } = await fixture(t, url);
  const members = `/merchants/${own.id}/members`;
  const statuses = new Set<number>();
  for (let index = 0; index < 60; index += 1) {
    const { status, id } = await send(ada, 'POST', members, { name: `viewer-${index}`, role: 'merchant-viewer' });
    statuses.add(status);
    statuses.add((await send(ada, 'POST', `${members}/${id}/links`)).status);
  }
  t.same([...statuses], [201]);
  t.equal((await send(ada, 'POST', '/tokens', { name: 'another' })).status, 201, 'an own token counts apart');
  for (let index = 0; index < 180; index += 1)
    statuses.add((await setHosts(ada, own, [`shop-${index}.example`])).status);
  t.same([...statuses], [201, 200]);
  const refused = { status: 429, code: 'too_many_changes' };
  t.match(await setHosts(bea, own, ['shop.example']), refused);
  t.match(await send(bea, 'POST', `${members}/${ada.id}/links`), refused, 'a link for another member');
  t.equal((await send(bea, 'POST', '/console-links', {})).status, 201, 'an own link');
});

onEachDatabase('members whose sign-ins change their accounts take no changes away from the others', async (t, url) => {
  const { ada, bea, database, own, setHosts, time } = await fixture(t, url);
  // A sign-in at the provider stores this event if the claims create the member or change the roles.
  const event = { action: 'administrator.changed', merchantId: own.id, keyId: null } as const;
  const author = { ...registryAuthor, actor: 'ada', administratorId: ada.id, proof: `session:${ada.tokenId}` };
  const changes = (id: string) => Array.from({ length: 150 }, () => ({ ...event, before: null, after: { id } }));
  for (let count = 0; count < 2; count += 1)
    await recordEvents(database, changes(ada.id), { at: time.now(), author, revision: 1 });
  t.equal((await setHosts(bea, own, ['shop.example'])).status, 200);
  for (let count = 0; count < 2; count += 1)
    await recordEvents(database, changes(bea.id), { at: time.now(), author, revision: 1 });
  t.match(await setHosts(bea, own, ['other.example']), { status: 429 }, 'changes of others count');
});

onEachDatabase(
  'members of a merchant make 300 changes an hour together; others, and revocations, have no limit',
  async (t, url) => {
    const { ada, bea, cleo, app, call, createKey, other, own, send, setHosts, time } = await fixture(t, url);
    const { keyId } = await createKey(own.id);
    const members = `/merchants/${own.id}/members`;
    const statuses = new Set<number>();
    for (let index = 0; index < 300; index += 1)
      statuses.add((await setHosts(ada, own, [`shop-${index}.example`])).status);
    t.same([...statuses], [200]);

    const refused = { status: 429, wait: '3600', code: 'too_many_changes' };
    t.match(await setHosts(ada, own, ['shop.example']), refused);
    t.match(await setHosts(bea, own, ['shop.example']), refused, 'another member of the merchant');
    const body = { originAllowlist: ['shop.example'] };
    const headers = { authorization: `Bearer ${ada.token}` };
    const elsewhere = await call('PATCH', `/merchants/${own.id}`, { body, headers });
    t.match(elsewhere, { status: 429, headers: { 'retry-after': '3600' } }, 'at another process of the registry');
    const others = [
      ['POST', `/merchants/${own.id}/keys`, { environment: 'test' }],
      ['POST', `/keys/${keyId}/reset`, {}],
      ['POST', members, { name: 'dan', role: 'merchant-viewer' }],
      ['PATCH', `${members}/${ada.id}`, { role: 'merchant-viewer' }],
    ] as const;
    for (const [method, path, given] of others) t.match(await send(bea, method, path, given), refused, path);

    t.equal((await call('PATCH', `/merchants/${own.id}`, { body })).status, 200, 'an operator');
    t.equal((await setHosts(cleo, other, ['shop.example'])).status, 200, 'a member of another merchant');
    t.equal((await app.inject({ url: '/me', headers })).statusCode, 200, 'reading');
    t.equal((await send(bea, 'POST', `/keys/${keyId}/revoke`)).status, 200, 'revoking a key');
    t.equal((await send(ada, 'POST', `/tokens/${ada.tokenId}/revoke`)).status, 200, 'revoking a token');
    t.equal((await send(bea, 'PATCH', `${members}/${ada.id}`, { status: 'DISABLED' })).status, 200, 'disabling');
    t.match(await send(bea, 'PATCH', `${members}/${ada.id}`, { status: 'ACTIVE' }), refused, 'enabling');

    time.advance(hour / 2);
    const eve = { name: 'eve', role: 'merchant-viewer' };
    t.match(await send(bea, 'POST', members, eve), { ...refused, wait: '1800' });
    time.advance(hour / 2);
    t.equal((await send(bea, 'POST', members, eve)).status, 201, 'an hour after the changes');
  },
);

// Regression: a member could help a thief who had the merchant's key. The member used up the merchant's limit of
// changes, so nobody could replace the key for an hour.
onEachDatabase('a key older than an hour can be replaced at once although the limit is used up', async (t, url) => {
  const { ada, bea, createKey, database, own, send, setHosts, time } = await fixture(t, url);
  const { keyId } = await createKey(own.id);
  const old = database.updateTable('api_keys').set({ created_at: time.now() - hour });
  await old.where('key_id', '=', keyId).execute();
  for (let index = 0; index < 300; index += 1) await setHosts(ada, own, [`shop-${index}.example`]);
  const refused = { status: 429, code: 'too_many_changes' };
  t.match(await setHosts(bea, own, ['shop.example']), refused);
  t.match(await send(bea, 'POST', `/keys/${keyId}/reset`, { graceSeconds: 1 }), refused, 'with a grace period');
  const reset = await send(bea, 'POST', `/keys/${keyId}/reset`, {});
  t.equal(reset.status, 201);
  const again = await send(ada, 'POST', `/keys/${reset.keyId}/reset`, {});
  t.match(again, refused, 'resets do not fill the database: the new key cannot be reset again and again');
  t.equal((await send(bea, 'POST', `/keys/${reset.keyId}/revoke`)).status, 200);
});

onEachDatabase('members who change long allowlists reach the limit by the size of the events', async (t, url) => {
  const { bea, call, database, own, send, setHosts } = await fixture(t, url);
  const label = 'a'.repeat(60);
  const long = (start: string): string[] =>
    Array.from({ length: 1_000 }, (_, index) => `${start}${index}.${label}.${label}.${label}.example`);
  const lists = [long('a'), long('b')] as const;
  let accepted = 0;
  while (accepted < 40 && (await setHosts(bea, own, lists[accepted % 2 === 0 ? 0 : 1])).status === 200) accepted += 1;
  t.ok(accepted >= 10 && accepted < 20, `${accepted} changes`);
  t.match(await setHosts(bea, own, ['shop.example']), { status: 429, wait: '3600' });
  const { size } = await database
    .selectFrom('events')
    .select(sql<number>`sum(length("before")) + sum(length("after"))`.as('size'))
    .where('merchant_id', '=', own.id)
    .executeTakeFirstOrThrow();
  t.ok(size < 6_000_000, `${size} characters`);
  const created = await call('POST', `/merchants/${own.id}/keys`, { body: { environment: 'live' } });
  t.equal(created.status, 201, 'an operator');
  t.equal((await send(bea, 'POST', `/merchants/${own.id}/keys`, { environment: 'live' })).status, 429);
});

onEachDatabase('members create keys up to 1,000 valid ones for each environment, operators more', async (t, url) => {
  const { bea, createKey, database, own, send, time } = await fixture(t, url);
  const { keyId } = await createKey(own.id);
  const stored = await database.selectFrom('api_keys').selectAll().executeTakeFirstOrThrow();
  /** Adds `count` copies of the stored key. Their ids begin with `name`, and `fields` replaces some of their fields. */
  const add = async (count: number, name: string, fields: object = {}): Promise<void> => {
    for (let from = 0; from < count; from += 500) {
      const rows = Array.from({ length: Math.min(500, count - from) }, (_, index) => {
        const id = `${name}-${from + index}`;
        return { ...stored, key_id: id, lookup_id: id, ...fields };
      });
      await database.insertInto('api_keys').values(rows).execute();
    }
  };
  await add(998, 'valid');
  await add(10, 'revoked', { status: 'REVOKED' });
  await add(10, 'expired', { expires_at: time.now() });
  const keys = `/merchants/${own.id}/keys`;
  t.equal((await send(bea, 'POST', keys, { environment: 'live' })).status, 201, 'the last one');
  const refused = { status: 409, code: 'conflict', message: /^The merchant has 1000 valid live keys, / };
  t.match(await send(bea, 'POST', keys, { environment: 'live' }), refused);
  t.match(await send(bea, 'POST', `/keys/${keyId}/reset`, { graceSeconds: 60 }), refused);
  t.equal((await send(bea, 'POST', keys, { environment: 'test' })).status, 201, 'the other environment');
  t.equal((await send(bea, 'POST', `/keys/${keyId}/reset`, {})).status, 201, 'a reset without a grace period');
  t.ok((await createKey(own.id)).keyId, 'an operator');
  t.equal((await send(bea, 'POST', '/keys/valid-0/revoke')).status, 200);
  t.match(await send(bea, 'POST', keys, { environment: 'live' }), refused, 'still as many as at the maximum');
  t.equal((await send(bea, 'POST', '/keys/valid-1/revoke')).status, 200);
  t.equal((await send(bea, 'POST', keys, { environment: 'live' })).status, 201);
});

onEachDatabase('members add or enable members up to 500 active ones, an owner more', async (t, url) => {
  const { ada, bea, call, database, own, send } = await fixture(t, url);
  const one = database.selectFrom('administrators').selectAll().where('id', '=', ada.id);
  const stored = await one.executeTakeFirstOrThrow();
  const rows = Array.from({ length: 497 }, (_, index) => ({ ...stored, id: `adm_${index}`, name: `viewer-${index}` }));
  await database.insertInto('administrators').values(rows).execute();
  const members = `/merchants/${own.id}/members`;
  const named = (name: string) => ({ name, role: 'merchant-viewer' });
  t.equal((await send(bea, 'POST', members, named('last'))).status, 201);
  const refused = { status: 409, code: 'conflict', message: /^The merchant has 500 active members, / };
  t.match(await send(bea, 'POST', members, named('dan')), refused);
  t.equal((await call('POST', members, { body: named('eve') })).status, 201, 'an owner');
  for (const id of ['adm_0', 'adm_1'])
    t.equal((await send(bea, 'PATCH', `${members}/${id}`, { status: 'DISABLED' })).status, 200);
  t.equal((await send(bea, 'POST', members, named('dan'))).status, 201, 'in place of a disabled one');
  t.match(await send(bea, 'PATCH', `${members}/adm_0`, { status: 'ACTIVE' }), refused);
  t.equal((await call('PATCH', `${members}/adm_0`, { body: { status: 'ACTIVE' } })).status, 200, 'an owner');
});
