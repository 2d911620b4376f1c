import { randomBytes } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { requireAccess } from '../../src/registry/administrators/access.js';
import { Attempts } from '../../src/registry/administrators/attempts.js';
import { Identities } from '../../src/registry/administrators/caller.js';
import { bearerCredentials } from '../../src/registry/administrators/credentials.js';
import { roleNames, type RoleName, roles } from '../../src/registry/administrators/roles.js';
import type { RegistryEvent } from '../../src/registry/events/schema.js';
import { createRestApp } from '../../src/rest/rest-app.js';
import { registryFixture } from '../registry/registry-fixture.js';

// Calls each operation of the OpenAPI description in each role, once for the caller's own merchant and once for another
// merchant. The response must be what the table of roles says.

interface Operation {
  /** Undefined for a route that anybody may use. */
  readonly 'x-access'?: { readonly permission: string; readonly merchant?: string };
  readonly requestBody?: object;
}

interface Asked {
  readonly role: RoleName;
  readonly method: string;
  readonly path: string;
  readonly operation: Operation;
  readonly isOwn: boolean;
}

/** Returns the status that the table requires; null if the request may pass. */
function expectedStatus({ role, operation, isOwn }: Asked): 403 | 404 | null {
  const { permission, merchant } = operation['x-access'] ?? {};
  const { isOfMember, permissions } = roles[role];
  if (isOfMember && (merchant === undefined || (!isOwn && (merchant === 'id' || merchant === 'keyId')))) return 404;
  return (permissions as readonly string[]).includes(permission ?? '') ? null : 403;
}

t.test('each role may do exactly what the table says, on the own and on a foreign merchant', async (t) => {
  const fixture = await registryFixture(t, 'sqlite::memory:', { random: randomBytes });
  const { app, call, createKey, createMerchant } = fixture;
  const [own, foreign] = [await createMerchant(), await createMerchant({ name: 'Bea Traders' })];
  const keys = { own: await createKey(own.id), foreign: await createKey(foreign.id) };
  await app.listen({ host: '127.0.0.1', port: 0 });
  const base = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
  const ask = async (method: string, path: string, bearer: string) => {
    const body = method === 'get' || path.endsWith('/revoke') || path.endsWith('/lift') ? null : '{}';
    const response = await fetch(`${base}${path}`, {
      method: method.toUpperCase(),
      headers: { authorization: `Bearer ${bearer}`, ...(body !== null && { 'content-type': 'application/json' }) },
      body,
    });
    if (response.headers.get('content-type') === 'text/event-stream') {
      // A stream has no end.
      await response.body?.cancel();
      return { status: response.status, body: { message: '', data: null } };
    }
    return { status: response.status, body: (await response.json()) as { message: string; data: unknown } };
  };

  const bearers = new Map<RoleName, string>();
  for (const role of roleNames) {
    const isMember = roles[role].isOfMember;
    const body = { name: `the-${role}`, roles: [role], ...(isMember && { merchantId: own.id }) };
    const { id } = (await call<{ id: string }>('POST', '/administrators', { body })).body.data;
    const token = await call<{ token: string }>('POST', '/tokens', { body: { name: 'x', administratorId: id } });
    bearers.set(role, token.body.data.token);
  }

  const memberOf = async (merchantId: string): Promise<string> => {
    const body = { name: `member-of-${merchantId}`, role: 'merchant-viewer' };
    return (await call<{ id: string }>('POST', `/merchants/${merchantId}/members`, { body })).body.data.id;
  };
  const members = { own: await memberOf(own.id), foreign: await memberOf(foreign.id) };

  const { paths } = (await app.inject('/openapi.json')).json<{ paths: Record<string, Record<string, Operation>> }>();
  const differences: object[] = [];
  const open: string[] = [];
  let asked = 0;
  for (const [path, operations] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      if (operation['x-access'] === undefined) open.push(path);
      else
        for (const role of roleNames) {
          for (const isOwn of [true, false]) {
            const [merchant, key] = isOwn ? [own, keys.own] : [foreign, keys.foreign];
            const of = operation['x-access'].merchant;
            const isOfOne = of === 'id' || of === 'keyId';
            const filled = path
              .replace('{id}', of === 'id' ? merchant.id : 'nothing')
              .replace('{keyId}', key.keyId)
              .replace('{memberId}', isOwn ? members.own : members.foreign);
            const { status, body } = await ask(method, filled, bearers.get(role) ?? '');
            const expected = expectedStatus({ role, method, path, operation, isOwn });
            asked += 1;
            const isPassed = status !== 401 && status !== 403 && status !== 429 && body.message !== 'Route not found';
            // A path with the id of the merchant or key must not get 404, because both exist. Paths of the console may
            // get 404, because the console is off.
            const isOff = body.message.startsWith('This registry has no console');
            const isRight =
              expected === null ? isPassed && !(isOfOne && status === 404 && !isOff) : status === expected;
            if (!isRight) differences.push({ role, method, path, isOwn, expected, status, message: body.message });
          }
        }
    }
  }
  t.same(differences, []);
  t.same(open, ['/sign-in/device', '/sign-in/token', '/sign-in/refresh']);
  t.ok(asked >= 30 * roleNames.length * 2, `${asked} requests`);
});

t.test('a member sees only the own merchant in lists, and no field of a list filter leads to another', async (t) => {
  const { call, createKey, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  const [own, foreign] = [await createMerchant(), await createMerchant({ name: 'Bea Traders' })];
  const key = await createKey(foreign.id);
  await createKey(own.id);
  const member = { name: 'mo', roles: ['merchant-viewer'], merchantId: own.id };
  const { id } = (await call<{ id: string }>('POST', '/administrators', { body: member })).body.data;
  const created = await call<{ token: string }>('POST', '/tokens', { body: { name: 'x', administratorId: id } });
  const headers = { authorization: `Bearer ${created.body.data.token}` };
  const merchants = await call<{ id: string }[]>('GET', '/merchants', { headers });
  t.same(
    merchants.body.data.map((one) => one.id),
    [own.id],
  );
  t.match(await call('GET', '/merchants?name=Bea', { headers }), { body: { meta: { total_records: 0 } } });
  const events = await call<{ merchantId: string }[]>('GET', '/events?per_page=100', { headers });
  t.ok(events.body.data.length > 0);
  t.ok(events.body.data.every(({ merchantId }) => merchantId === own.id));
  for (const query of [`merchantId=${foreign.id}`, `keyId=${key.keyId}`, 'action=attempt.refused'])
    t.match(await call('GET', `/events?${query}`, { headers }), { body: { meta: { total_records: 0 } } }, query);
  t.match(await call('GET', `/tokens?administratorId=adm_other`, { headers }), { status: 404 });
});

t.test('a member may change the allowlists of the own merchant, and nothing that the platform decides', async (t) => {
  const { call, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  const { id: merchantId } = await createMerchant({ status: 'SUSPENDED' });
  const member = { name: 'mo', roles: ['merchant-admin'], merchantId };
  const { id } = (await call<{ id: string }>('POST', '/administrators', { body: member })).body.data;
  const created = await call<{ token: string }>('POST', '/tokens', { body: { name: 'x', administratorId: id } });
  const headers = { authorization: `Bearer ${created.body.data.token}` };
  const patch = (body: object) => call('PATCH', `/merchants/${merchantId}`, { body, headers });
  for (const body of [{ status: 'ACTIVE' }, { goLive: true }, { name: 'x' }, { originAllowlist: null, goLive: true }])
    t.match(await patch(body), { status: 403, body: { data: { permission: 'merchants:write' } } });
  t.match(await patch({ originAllowlist: ['shop.example'] }), { status: 200 });
  t.match(await call('GET', `/merchants/${merchantId}`, { headers }), {
    body: { data: { status: 'SUSPENDED', goLive: false, originAllowlist: ['shop.example'] } },
  });
});

t.test('a member who tries the names of other people leaves events', async (t) => {
  const { call, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  const [own, foreign] = [await createMerchant(), await createMerchant({ name: 'Bea Traders' })];
  const create = async (name: string, merchantId: string): Promise<string> => {
    const body = { name, roles: ['merchant-admin'], merchantId };
    return (await call<{ id: string }>('POST', '/administrators', { body })).body.data.id;
  };
  await create('bea', foreign.id);
  const body = { name: 'x', administratorId: await create('mo', own.id) };
  const { token } = (await call<{ token: string }>('POST', '/tokens', { body })).body.data;
  const add = (name: string, headers = {}) =>
    call('POST', `/merchants/${own.id}/members`, { body: { name, role: 'merchant-viewer' }, headers });
  const headers = { authorization: `Bearer ${token}` };
  for (const name of ['bea', 'registry']) t.equal((await add(name, headers)).status, 409, name);
  t.equal((await add('bea')).status, 409, 'an owner can list all names, so their attempt is no event');
  t.equal((await add('pat', headers)).status, 201);
  const refused = (await call<RegistryEvent[]>('GET', '/events?action=attempt.refused')).body.data;
  t.same(
    refused.map(({ actor, after }) => [actor, after?.route, after?.needs]),
    [
      ['mo', '/merchants/:id/members', 'an unused name'],
      ['mo', '/merchants/:id/members', 'an unused name'],
    ],
    'each attempt of the member is an event',
  );
});

t.test('an administrator gains no right through the tokens of others or their own', async (t) => {
  const { call } = await registryFixture(t, 'sqlite::memory:');
  const create = async (name: string, roles: string[]) => {
    const { id } = (await call<{ id: string }>('POST', '/administrators', { body: { name, roles } })).body.data;
    const body = { name: 'x', administratorId: id };
    const { token, id: tokenId } = (await call<{ token: string; id: string }>('POST', '/tokens', { body })).body.data;
    return { id, tokenId, headers: { authorization: `Bearer ${token}` } };
  };
  const owner = await create('ada', ['owner']);
  const { headers } = await create('sam', ['support']);
  const own = await create('mia', ['support']);
  for (const [path, body] of [
    ['/tokens', { name: 'x', administratorId: owner.id }],
    [`/tokens/${owner.tokenId}/revoke`, undefined],
    [`/tokens/${own.tokenId}/revoke`, undefined],
  ] as const)
    t.match(await call('POST', path, { headers, ...(body && { body }) }), { status: 404 }, path);
  t.match(await call('POST', '/tokens', { headers, body: { name: 'x', roles: ['owner'] } }), { status: 422 });
  t.match(await call('GET', `/tokens?administratorId=${owner.id}`, { headers }), { status: 404 });
  t.match(await call('PATCH', `/administrators/${own.id}`, { headers, body: { roles: ['owner'] } }), { status: 403 });
  const last = { headers: owner.headers, body: { status: 'DISABLED' } };
  t.match(await call('PATCH', `/administrators/${owner.id}`, last), { status: 409 });
  t.equal((await call('GET', '/me', { headers: owner.headers })).status, 200);
  const refused = (await call<RegistryEvent[]>('GET', '/events?action=attempt.refused')).body.data.toReversed();
  const [write, read] = ['administrators:write', 'administrators:read'];
  t.same(
    refused.map(({ actor, after }) => [actor, after?.route, after?.needs]),
    [
      ['sam', '/tokens', write],
      ['sam', '/tokens/:id/revoke', write],
      ['sam', '/tokens/:id/revoke', write],
      ['sam', '/tokens', 'a token with the role owner'],
      ['sam', '/tokens', read],
      ['sam', '/administrators/:id', write],
      ['ada', '/administrators/:id', 'another owner'],
    ],
    'each attempt is an event',
  );
});

// Regression: with an invalid reason, each of these requests got a 400 that revealed the missing right. The registry
// stored no event about the attempt.
t.test('an invalid reason hides no refused attempt', async (t) => {
  const { call, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  const [own, foreign] = [await createMerchant(), await createMerchant({ name: 'Bea Traders' })];
  const create = async (name: string, role: RoleName, more: object = {}) => {
    const administrator = { name, roles: [role], ...more };
    const { id } = (await call<{ id: string }>('POST', '/administrators', { body: administrator })).body.data;
    const created = await call<{ token: string }>('POST', '/tokens', { body: { name: 'x', administratorId: id } });
    return { authorization: `Bearer ${created.body.data.token}` };
  };
  const sam = await create('sam', 'support');
  const mo = await create('mo', 'merchant-viewer', { merchantId: own.id });
  const mia = await create('mia', 'merchant-admin', { merchantId: own.id });
  const attempts = [
    [sam, 'GET', '/administrators', undefined, 403],
    [sam, 'POST', '/merchants', { name: 'x', goLive: true }, 403],
    [sam, 'GET', '/tokens?administratorId=adm_other', undefined, 404],
    [mo, 'GET', `/merchants/${foreign.id}/keys`, undefined, 404],
    [mia, 'PATCH', `/merchants/${own.id}`, { goLive: true }, 403],
  ] as const;
  for (const [given, reason] of [
    ['ticket%2012', 'ticket 12'],
    ['%', null],
    [encodeURIComponent(`svc_live_${'k'.repeat(49)}`), null],
  ] as const) {
    for (const [by, method, path, body, status] of attempts) {
      const headers = { ...by, 'x-reason': given };
      const response = await call(method, path, { headers, ...(body && { body }) });
      t.equal(response.status, status, `${method} ${path} with the reason ${given}`);
      const [event] = (await call<RegistryEvent[]>('GET', '/events?per_page=1')).body.data;
      t.match(event, { action: 'attempt.refused', requestId: response.headers['x-request-id'], reason });
    }
  }
});

// Regression: these requests got a 400 and no event, because the reason was read before the right was checked.
t.test('an invalid reason hides no attempt whose right depends on the record', async (t) => {
  const { call, createKey, createMerchant } = await registryFixture(t, 'sqlite::memory:', {
    reasonFor: new Set(['keys:revoke']),
  });
  const merchant = await createMerchant();
  const { keyId } = await createKey(merchant.id);
  const create = async (name: string, role: RoleName, more: object = {}) => {
    const administrator = { name, roles: [role], ...more };
    const { id } = (await call<{ id: string }>('POST', '/administrators', { body: administrator })).body.data;
    const body = { name: 'x', administratorId: id };
    const { token, id: tokenId } = (await call<{ token: string; id: string }>('POST', '/tokens', { body })).body.data;
    return { id, tokenId, by: { authorization: `Bearer ${token}` } };
  };
  const ada = await create('ada', 'owner');
  const sam = await create('sam', 'support');
  const mo = await create('mo', 'merchant-viewer', { merchantId: merchant.id });
  const needs = 'a valid x-reason or x-actor';
  for (const [{ by }, method, path, body, route] of [
    [sam, 'POST', '/tokens', { name: 'x', administratorId: ada.id }, '/tokens'],
    [mo, 'POST', `/tokens/${ada.tokenId}/revoke`, undefined, '/tokens/:id/revoke'],
    [mo, 'GET', `/merchants/${merchant.id}/keys`, undefined, '/merchants/:id/keys'],
    [sam, 'POST', `/keys/${keyId}/revoke`, undefined, '/keys/:keyId/revoke'],
  ] as const) {
    const response = await call(method, path, { headers: { ...by, 'x-reason': '%' }, ...(body && { body }) });
    t.match(response, { status: 400, body: { message: /^x-reason must be/ } }, `${method} ${path}`);
    const [event] = (await call<RegistryEvent[]>('GET', '/events?per_page=1')).body.data;
    const requestId = response.headers['x-request-id'];
    t.match(event, { action: 'attempt.refused', requestId, reason: null, after: { method, route, needs } });
  }
});

t.test('a route that declares no permission prevents the start', async (t) => {
  const { database, time: clock } = await registryFixture(t, 'sqlite::memory:');
  const credentials = bearerCredentials(new Identities({ database, bootstrapToken: null }));
  const attempts = new Attempts({ database, clock, timers: clock });
  const app = createRestApp({ admit: requireAccess({ database, credentials, attempts, clock }) });
  t.throws(() => app.get('/secrets', () => null), { message: 'the route GET /secrets declares no permission' });
});
