import t from 'tap';
import { roleNames, roles } from '../../src/registry/administrators/roles.js';
import { createRestApp } from '../../src/rest/rest-app.js';
import { requireOperator } from '../../src/services/operators/operator-access.js';
import { registryFixture } from '../registry/registry-fixture.js';
import { administratorsWith, newServicesTokenKey, operatorsOf } from './operators-fixture.js';
import { onEachServices, servicesFixture } from './services-fixture.js';

interface Operation {
  readonly 'x-permission'?: string;
}

onEachServices('each role may do exactly what the table says with wallets', async (t, services) => {
  const servicesTokenKey = await newServicesTokenKey();
  const registry = await registryFixture(t, 'sqlite::memory:', { servicesTokenKey });
  const administrators = await administratorsWith([servicesTokenKey], registry.time);
  const { app, open } = operatorsOf(t, services, { administrators });
  const walletId = await open('merchant_a');
  const { paths } = (await app.inject('/openapi.json')).json<{ paths: Record<string, Record<string, Operation>> }>();
  const routes = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => ({ path, method, needs: operation['x-permission'] ?? '' })),
  );
  t.equal(routes.length, 7);
  const order = { currency: 'NGN', environment: 'live', merchantId: 'merchant_a' };
  for (const role of roleNames) {
    const { isOfMember, permissions } = roles[role];
    const merchantId = isOfMember ? (await registry.createMerchant()).id : undefined;
    const administrator = { name: `the-${role}`, roles: [role], ...(isOfMember && { merchantId }) };
    const { id } = (await registry.call<{ id: string }>('POST', '/administrators', { body: administrator })).body.data;
    const body = { name: 'x', administratorId: id };
    const { token } = (await registry.call<{ token: string }>('POST', '/tokens', { body })).body.data;
    const headers = { authorization: `Bearer ${token}` };
    const signed = await registry.call<{ token: string }>('POST', '/services-tokens', { headers });
    const mayAny = (permissions as readonly string[]).some((one) => one.startsWith('wallets:'));
    t.equal(signed.status, mayAny ? 201 : isOfMember ? 404 : 403, role);
    if (!mayAny) continue;
    for (const { path, method, needs } of routes) {
      const movement = { amount: 7, reference: `${role}:${path.slice(-8).replace(/\W/, '')}`, reason: 'A test' };
      const payload = path === '/wallets' ? order : { ...order, ...movement };
      const { statusCode } = await app.inject({
        ...{ method: method as 'get' | 'post', url: path.replace('{id}', walletId) },
        headers: {
          authorization: `Bearer ${signed.body.data.token}`,
          ...(method === 'post' && { 'content-type': 'application/json' }),
        },
        ...(method === 'post' && { payload: JSON.stringify(payload) }),
      });
      const may = (permissions as readonly string[]).includes(needs);
      t.equal(may ? statusCode < 300 : statusCode === 403, true, `${role}: ${method} ${path} is ${statusCode}`);
    }
  }
});

t.test('a reason is required where the registry requires one', async (t) => {
  const servicesTokenKey = await newServicesTokenKey();
  const reasonFor = new Set(['wallets:write', 'wallets:fund']);
  const registry = await registryFixture(t, 'sqlite::memory:', { servicesTokenKey, reasonFor });
  const administrators = await administratorsWith([servicesTokenKey], registry.time);
  const { operate } = operatorsOf(t, await servicesFixture(t), { administrators });
  const signed = await registry.call<{ token: string }>('POST', '/services-tokens');
  const headers = { authorization: `Bearer ${signed.body.data.token}` };
  const body = { merchantId: 'merchant_a', environment: 'live', currency: 'NGN' };
  t.match(await operate('POST', '/wallets', body, headers), {
    status: 400,
    body: { message: /--reason/, data: { code: 'reason_required' } },
  });
  t.match(await operate('POST', '/wallets', body, { ...headers, 'x-reason': '%zz' }), { status: 400 });
  const created = await operate('POST', '/wallets', body, { ...headers, 'x-reason': 'new%20shop' });
  t.equal(created.status, 201);
  const order = { amount: 1, currency: 'NGN', environment: 'live', reference: 'one', reason: 'Deposit' };
  const path = `/wallets/${(created.body.data as { id: string }).id}/fund`;
  t.equal((await operate('POST', path, order, headers)).status, 201, 'a movement has its reason in the body');
});

t.test('unknown paths are revealed only to an operator', async (t) => {
  const { app, operate } = operatorsOf(t, await servicesFixture(t));
  for (const url of ['/nothing', '/wallets/x/y/z']) {
    t.equal((await app.inject(url)).statusCode, 401);
    t.equal((await operate('GET', url)).status, 404);
  }
  t.equal((await app.inject({ method: 'DELETE', url: '/wallets' })).statusCode, 401);
});

t.test('a route of the operators’ API that declares no permission prevents the start', (t) => {
  const app = createRestApp({ admit: requireOperator({ token: null, administrators: null, attempts: null }) });
  t.throws(() => app.get('/secrets', () => null), { message: 'the route GET /secrets declares no permission' });
  t.end();
});
