import t from 'tap';
import { keyText, NoteSigner } from '../../src/evidence/signed-note.js';
import { startRegistry } from '../../src/registry/start-registry.js';
import { onEachDatabase } from '../database/each-database.js';
import { ManualTime, outwait, until } from './manual-time.js';
import { gateway, MemoryRecordsStore } from './memory-records-store.js';
import { registryFixture, token } from './registry-fixture.js';

t.test('without the token every request gets the same 401, and no response reveals which paths exist', async (t) => {
  const { app } = await registryFixture(t, 'sqlite::memory:');
  const required = { success: false, message: 'A bearer token is required', data: null };
  const invalid = { success: false, message: 'Invalid token', data: null };
  const cases: [authorization: string | undefined, body: object][] = [
    [undefined, required],
    ['', required],
    [token, required],
    [`Basic ${Buffer.from(`admin:${token}`).toString('base64')}`, invalid],
    ['Bearer', required],
    [`Bearer ${token}x`, invalid],
    [`Bearer ${token.slice(0, -1)}`, invalid],
    [`Bearer ${token.toUpperCase()}`, invalid],
    [`Bearer ${token} ${token}`, required],
    [`Bearer ${token}, Bearer ${token}`, required],
  ];
  for (const [index, [authorization, body]] of cases.entries()) {
    const remoteAddress = `198.51.100.${index}`; // one for each case: after many failures an address gets 429
    for (const [method, url] of [
      ['GET', '/merchants'],
      ['POST', '/merchants'],
      ['GET', '/nothing'],
      ['OPTIONS', '/merchants'],
    ] as const) {
      const headers = authorization === undefined ? {} : { authorization };
      const asked = { method, url, headers, remoteAddress };
      const response = await app.inject({ ...asked, ...(method === 'POST' ? { payload: '{' } : {}) });
      t.equal(response.statusCode, 401, `${method} ${url} ${authorization ?? ''}`);
      t.same(response.json(), authorization?.startsWith('Basic') === true ? required : body);
      t.equal(response.headers['www-authenticate'], 'Bearer');
      t.equal(response.headers['cache-control'], 'no-store');
      t.equal(response.headers['content-type'], 'application/json; charset=utf-8');
      t.equal(response.headers['access-control-allow-origin'], undefined);
    }
  }
  const headers = { authorization: `bearer  ${token}` };
  t.equal(
    (await app.inject({ url: '/merchants', headers })).statusCode,
    200,
    'the authentication scheme is case-insensitive',
  );
  t.equal((await app.inject({ url: '/nothing', headers })).statusCode, 404);
  t.equal((await app.inject({ url: '/merchants', headers: { cookie: `token=${token}` } })).statusCode, 401);
  t.equal((await app.inject({ url: `/merchants?access_token=${token}` })).statusCode, 401);
});

t.test(
  'with the shared token the claimed name is noted beside the actor, and limited in length and characters',
  async (t) => {
    const { call } = await registryFixture(t, 'sqlite::memory:');
    for (const actor of ['a'.repeat(65), 'a b', 'a,b', '<script>', '-x', 'a\u00e9']) {
      const response = await call('POST', '/merchants', { body: { name: 'x' }, headers: { 'x-actor': actor } });
      t.match(response, { status: 400, body: { message: /^x-actor must be/ } }, actor);
    }
    t.match((await call('GET', '/merchants')).body, { meta: { total_records: 0 } });
    for (const actor of ['ada@example.com', 'ci:deploy-7', '']) {
      await call('POST', '/merchants', { body: { name: 'x' }, headers: { 'x-actor': actor } });
    }
    const path = '/events?action=merchant.created';
    const events = (await call<{ actor: string; claimed: string | null }[]>('GET', path)).body.data;
    t.ok(events.every(({ actor }) => actor === 'bootstrap'));
    t.same(
      events.map(({ claimed }) => claimed),
      [null, 'ci:deploy-7', 'ada@example.com'],
    );
  },
);

t.test('the gateway list shows every live gateway with its acknowledged revision', async (t) => {
  const { call, createMerchant, store } = await registryFixture(t, 'sqlite::memory:');
  store.live = [gateway('b', { environment: 'test' }), gateway('a')];
  await createMerchant();
  const common = {
    ...{ revision: 1, version: '1.0.0', startedAt: '2026-01-15T11:00:00.000Z', enrolled: false, confirms: true },
    ...{ lifetimeSeconds: 31, lastSeenAt: '2026-01-15T12:00:00.000Z', clockSkewMilliseconds: null },
  };
  t.same((await call('GET', '/gateways')).body, {
    ...{ success: true, message: 'Gateways retrieved' },
    data: [
      { ...common, instanceId: 'a', environment: 'live', host: 'a.internal' },
      { ...common, instanceId: 'b', environment: 'test', host: 'b.internal' },
    ],
  });
});

interface Schema {
  readonly type?: string;
  readonly pattern?: unknown;
  readonly properties?: Record<string, Schema>;
  readonly additionalProperties?: boolean;
}

interface Description {
  readonly openapi: string;
  readonly paths: Record<
    string,
    Record<
      string,
      {
        operationId: string;
        parameters: { name: string; in: string }[];
        requestBody?: { content: { 'application/json': { schema: Schema } } };
        responses: Record<string, { description: string; content: { 'application/json': { schema: Schema } } }>;
      }
    >
  >;
}

t.test('the OpenAPI description matches the validating schemas; it and the health checks need no token', async (t) => {
  const { app, call, createMerchant, database } = await registryFixture(t, 'sqlite::memory:');
  const response = await app.inject('/openapi.json');
  t.equal(response.statusCode, 200);
  const description = response.json<Description>();
  t.equal(description.openapi, '3.1.0');
  const operations = Object.entries(description.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ name: `${method} ${path}`, ...operation })),
  );
  t.same(operations.map(({ name }) => name).sort(), [
    ...['delete /merchants/{id}/usage', 'delete /sessions/{id}'],
    ...[
      'get /administrators',
      'get /administrators/{id}',
      'get /approvals',
      'get /approvals/{id}',
      'get /checkpoints',
      'get /checkpoints/findings',
      'get /checkpoints/head',
    ],
    ...[
      'get /events',
      'get /events/chain',
      'get /events/chain/rows',
      'get /events/exports/{id}',
      'get /exports',
      'get /gateways',
      'get /instance-keys',
      'get /keys/{keyId}',
    ],
    ...['addresses', 'agents', 'last-use', 'usage'].map((name) => `get /keys/{keyId}/${name}`),
    ...[
      'get /me',
      'get /merchants',
      'get /merchants/{id}',
      'get /merchants/{id}/addresses',
      'get /merchants/{id}/addresses/verdict',
      'get /merchants/{id}/hosts',
      'get /merchants/{id}/keys',
      'get /merchants/{id}/members',
      'get /merchants/{id}/refusals',
      'get /merchants/{id}/usage',
    ],
    ...[
      'get /restores',
      'get /restores/held',
      'get /roles',
      'get /search',
      'get /sessions',
      'get /stream',
      'get /tokens',
      'get /unusual',
      'get /unusual/rules',
      'get /unusual/webhooks',
      'get /unusual/{id}',
      'get /usage/gateways',
      'get /usage/unknown',
      'get /usage/unknown/requests',
      'patch /administrators/{id}',
      'patch /merchants/{id}',
      'patch /merchants/{id}/members/{memberId}',
      'post /administrators',
      'post /approvals',
      'post /approvals/{id}/approve',
      'post /approvals/{id}/reject',
      'post /console-links',
      'post /events/exports',
      'post /events/services',
      'post /imports',
      'post /imports/check',
    ],
    ...['post /instance-keys', 'post /instance-keys/confirm', 'post /instance-keys/end'],
    ...['post /keys/{keyId}/reset', 'post /keys/{keyId}/revoke', 'post /merchants'],
    ...[
      'post /merchants/{id}/keys',
      'post /merchants/{id}/members',
      'post /merchants/{id}/members/{memberId}/links',
      'post /restores/held/{id}/lift',
      'post /services-tokens',
      'post /sign-in/device',
      'post /sign-in/out',
      'post /sign-in/refresh',
    ],
    ...['post /sign-in/token', 'post /tokens', 'post /tokens/{id}/revoke', 'post /unusual/{id}/answer'],
  ]);
  t.same(
    operations.filter(({ responses }) => responses[421] === undefined).map(({ name }) => name),
    [],
    'each operation describes the response to another Host',
  );
  t.equal(new Set(operations.map(({ operationId }) => operationId)).size, operations.length);
  const create = description.paths['/merchants']?.post;
  const body = create?.requestBody?.content['application/json'].schema;
  t.same(Object.keys(body?.properties ?? {}), [
    'name',
    'status',
    'goLive',
    'ipAllowlist',
    'originAllowlist',
    'confirm',
  ]);
  t.equal(body?.additionalProperties, false);
  t.match(body?.properties?.status?.pattern, '[A-Z][A-Z_]{0,31}$');
  t.same(
    description.paths['/events']?.get?.parameters.map(({ name }) => name),
    [
      ...['page', 'per_page', 'seq', 'merchantId', 'keyId', 'action', 'actor', 'administratorId', 'proof', 'claimed'],
      ...['source', 'requestId', 'reason', 'revision', 'since', 'until', 'x-reason'],
    ],
  );
  t.notMatch(response.body, /"(?:pattern)":\{/, 'the description exposes no regular expression');

  const failures = ['400', '401', '403', '404', '409', '413', '415', '421', '422', '429', '500', '503'];
  t.same(
    Object.keys(create?.responses ?? {}).filter((status) => status >= '400'),
    failures,
    'every error status is described',
  );
  t.same(
    Object.keys(description.paths['/merchants']?.get?.responses ?? {}).filter((status) => status >= '400'),
    failures.filter((status) => status !== '413' && status !== '415'),
  );
  const may = /^A database is unavailable\. The change may have been made nevertheless: check/;
  t.match(create?.responses['503']?.description, may);
  t.equal(description.paths['/merchants']?.get?.responses['503']?.description, 'A database is unavailable');

  const data = create?.responses['201']?.content['application/json'].schema.properties?.data?.properties ?? {};
  t.same(
    Object.keys(await createMerchant()).sort(),
    Object.keys(data).sort(),
    'the response has exactly the described fields',
  );
  const publicKey = keyText(NoteSigner.inMemory('control.example').key);
  t.equal((await call('POST', '/instance-keys', { body: { publicKey } })).status, 201);
  const pinning = description.paths['/instance-keys']?.post?.responses ?? {};
  t.same(
    Object.keys(pinning).filter((status) => status < '300'),
    ['201', '202'],
    'the status of a pinned key is described',
  );
  for (const path of ['/livez', '/readyz']) {
    const health = await app.inject(path);
    t.equal(health.statusCode, 200, path);
    t.match(health.json(), { success: true });
  }
  t.equal((await call('GET', '/openapi.json')).status, 200, 'the description is also served with a token');
  await database.destroy();
  const unready = await app.inject('/readyz');
  t.equal(unready.statusCode, 503);
  t.same(unready.json(), { success: false, message: 'The database is unavailable', data: null });
  t.equal((await app.inject('/livez')).statusCode, 200, 'liveness does not depend on the database');
});

const parts = {
  random: (size: number) => Buffer.alloc(size, 7),
  pepper: null,
  maxStaleSeconds: 30,
  resources: new Set<string>(),
};

onEachDatabase(
  'the registry starts while the store is unavailable, and its changes survive a restart',
  async (t, url) => {
    const time = new ManualTime();
    const store = new MemoryRecordsStore();
    const directory = t.testdir({ token: `${token}\n` });
    const options = { host: '127.0.0.1', port: 0, databaseUrl: url, tokenFile: `${directory}/token` };
    store.fails = () => 'before';
    const first = await startRegistry({ ...options, ...parts, store, clock: time, timers: time });
    const created = await outwait(time, send(first.url, 'POST', '/merchants', { name: 'kept' }));
    t.match(created, { status: 202, body: { data: { propagation: { projected: false } } } });
    await first.close();
    await t.rejects(send(first.url, 'GET', '/livez'), 'the registry has stopped listening');

    store.fails = () => null;
    const second = await startRegistry({ ...options, ...parts, store, clock: time, timers: time });
    t.teardown(() => second.close());
    await until(() => store.meta !== null);
    t.match(await send(second.url, 'GET', '/merchants'), { body: { data: [{ name: 'kept' }] } });
    t.match([...store.records.values()], [{ name: 'kept' }]);
  },
);

t.test('a request in progress gets its response before the registry stops', async (t) => {
  const time = new ManualTime();
  const store = new MemoryRecordsStore();
  const tokenFile = `${t.testdir({ token })}/token`;
  const options = { host: '::1', port: 0, databaseUrl: 'sqlite::memory:', tokenFile };
  const registry = await startRegistry({ ...options, ...parts, store, clock: time, timers: time });
  t.match(registry.url, /^http:\/\/\[::1\]:\d+$/);
  await until(() => store.meta !== null);
  store.live = [gateway('deaf', { acknowledges: false })];
  const creating = send(registry.url, 'POST', '/merchants', { name: 'x' });
  await until(() => store.revision === 1);
  const closing = registry.close();
  t.match(await outwait(time, creating), { status: 201, body: { data: { propagation: { pending: [{}] } } } });
  await closing;
});

t.test('a failed start reports the cause and leaves nothing open', async (t) => {
  const time = new ManualTime();
  const directory = t.testdir({ token, short: 'x'.repeat(31), spaced: `${token} ${token}`, empty: '' });
  const options = { host: '127.0.0.1', port: 0, databaseUrl: 'sqlite::memory:', tokenFile: `${directory}/token` };
  const start = (changes: object) =>
    startRegistry({ ...options, ...parts, ...changes, store: new MemoryRecordsStore(), clock: time, timers: time });
  const registry = await start({});
  t.teardown(() => registry.close());
  await until(() => time.untilNext !== null);
  const cases: [changes: object, message: RegExp][] = [
    [{ tokenFile: null }, /^registry\.tokenFile must name a file with a token of at least 32 characters/],
    [{ tokenFile: `${directory}/none` }, /^The token file .*none cannot be read: there is no such file\.$/],
    [{ tokenFile: `${directory}/short` }, /must contain one token of at least 32/],
    [{ tokenFile: `${directory}/spaced` }, /must contain one token of at least 32/],
    [{ tokenFile: `${directory}/empty` }, /must contain one token of at least 32/],
    [
      { databaseUrl: 'postgres://admin:s3cr3tw0rd@127.0.0.1:1/x' },
      /^The PostgreSQL database x at 127\.0\.0\.1:1 cannot be used/,
    ],
    [
      { port: Number(new URL(registry.url).port) },
      /^Cannot listen on 127\.0\.0\.1:\d+ \(registry\.listen\): the port is in use/,
    ],
  ];
  for (const [changes, message] of cases) {
    await t.rejects(start(changes), { message });
    await t.rejects(
      start(changes).catch((error: unknown) => Promise.reject(new Error(String(error)))),
      {
        message: /^(?!.*(?:s3cr3tw0rd|a-token-of)).*$/,
      },
    );
  }
});

async function send(base: string, method: string, path: string, body?: object) {
  const response = await fetch(`${base}${path}`, {
    method,
    headers: {
      ...{ authorization: `Bearer ${token}`, connection: 'close' },
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: await response.json() };
}
