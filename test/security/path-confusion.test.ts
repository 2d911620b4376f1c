import t from 'tap';
import { compileOriginPatterns, namesOnionService } from '../../src/policy/origins.js';
import { ask, liveKey, recordsOf, startTestGateway, startUpstream } from '../edge/harness.js';
import { registryFixture } from '../registry/registry-fixture.js';
import { merchantA, servicesFixture } from '../services/services-fixture.js';

// Paths that the gateway and the service behind it read differently let a caller pass one route's permission and reach
// another one. The key of these tests may use transactions, and customers, to which the route /dev leads.
const headers = [['x-api-key', liveKey]] as const;
const records = recordsOf(liveKey, { key: { permissions: ['transactions:*', 'customers:*'] } });

const methods = ['GET', 'POST'] as const;

/** Segments of routes under other spellings, of which each made a payout somewhere. */
const lookalikes: readonly (readonly [string, readonly string[]])[] = [
  // Express, ASP.NET and Spring compare paths in any case unless they are told not to.
  ['in other letters', ['/v1/dev/payoutS', '/v1/dev/PAYOUTS/1', '/v1/Payouts', '/v1/DEV/payouts', '/V1/dev/payouts']],
  // Spring, Rails and ASP.NET cut a suffix off, and Windows cuts dots off.
  [
    'with a suffix',
    ['/v1/dev/payouts.json', '/v1/dev/payouts.', '/v1/dev/payouts.a.b/1', '/v1/payouts.xml', '/v1.1/dev'],
  ],
  ['with both', ['/v1/dev/PayoutS.JSON', '/v1/Dev.x/payouts', '/V1./dev/payouts']],
  // F5 CVE-2020-5902, Tomcat, Jetty: what stands behind `;` is cut off behind the check.
  ['with parameters', ['/v1/dev/payouts;x', '/v1/dev/payouts;', '/v1/payouts;a=b/1', '/v1/dev;/payouts', '/v1;x/dev']],
  ['with parameters and dots', ['/v1/transactions;/../payouts', '/v1/dev/..;/payouts', '/v1/dev;/../payouts']],
  // Envoy CVE-2021-29492, Traefik CVE-2025-66490, APISIX CVE-2021-43557: decoded behind the check.
  ['encoded', ['/v1/dev/%70ayouts', '/v1/dev/payout%73/1', '/%76%31/payouts', '/v1/%64ev/payouts', '/v1/%2570ayouts']],
  ['with encoded ends', ['/v1/dev/payouts%20', '/v1/dev/payouts%3bx', '/v1/dev/payouts%2ejson', '/v1/dev/payouts%00']],
  ['with encoded slashes', ['/v1/dev/payouts%2f1', '/v1/dev%2fpayouts', '/v1/dev/x%2f..%2fpayouts', '/v1%5c..%5cv1']],
  ['with encoded dots', ['/v1/dev/%2e%2e/payouts', '/v1%2e%2e/payouts', '/v1/%2e/payouts', '/v1/dev/.%2E/payouts']],
  // What is no UTF-8 has its own meaning to each decoder: `%c0%af` is a slash to some, `%ff` and `%ef%bd%90` a letter.
  ['beyond ASCII', ['/v1/dev%c0%afpayouts', '/v1/dev/payouts%ff', '/v1/dev/%ef%bd%90ayouts', '/v1/dev/payouts%c2%a0']],
];

t.test('path confusion: another spelling of a route is 404 after authentication', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, records });
  for (const [name, paths] of lookalikes) {
    for (const path of paths) {
      for (const method of methods) {
        const response = await ask(gateway, { method, path, headers });
        t.equal(response.status, 404, `${name}: ${method} ${path}`);
        t.equal(response.body, '{"success":false,"message":"Not found","data":null}');
        t.equal((await ask(gateway, { method, path, headers: [['x-api-key', 'svc_live_unknown']] })).status, 401);
        t.equal((await ask(gateway, { method, path })).status, 401);
      }
    }
  }
  t.same(upstream.seen, []);
  const codes = gateway.lines.map((line) => (line.event as { code: string }).code);
  t.same(new Set(codes), new Set(['not_found', 'key_unknown', 'key_required']), 'none is logged as accepted');
  t.notOk(gateway.lines.some((line) => 'route' in (line.gateway as object)));
  t.equal((await ask(gateway, { path: '/v1/dev/payouts', headers })).status, 403);
  t.same(gateway.internalErrors, []);
});

const escapes: readonly (readonly [string, readonly string[]])[] = [
  // reply-from CVE-2021-21321 and http-proxy CVE-2021-21322: a path that leaves its prefix, or becomes another origin.
  [
    'leaving the prefix',
    ['/v1/transactions/../payouts', '/v1/transactions/..', '/v1//evil.example/payouts', '//v1/payouts'],
  ],
  ['another origin', ['/v1/transactions//evil.example', '/v1/transactions/\\\\evil.example', '/\\evil.example/v1']],
  // Envoy CVE-2019-9901: paths that were compared as they came and normalised behind it.
  // Traefik CVE-2025-32431, CVE-2025-47952 and CVE-2026-40912: dot segments that appear behind the check.
  [
    'normalised later',
    ['/v1/transactions/./x', '/v1/transactions/%2e%2e/payouts', '/v1/transactions/.%2E/payouts', '/v1/dev/../payouts'],
  ],
  ['encoded slashes', ['/v1/transactions/..%2fpayouts', '/v1/transactions/%2Fx', '/v1/transactions/x%5c..%5cpayouts']],
  ['backslashes', ['/v1/transactions\\..\\payouts', '/v1/transactions/..\\payouts', '/v1\\payouts']],
  ['dots with parameters', ['/v1/transactions/..;/payouts', '/v1/transactions/.;x', '/v1/transactions/%2e%2E%3bx/y']],
  ['nothing but parameters', ['/v1/transactions/;x/..', '/v1/transactions/;/x', '/v1/transactions/%3Bx']],
  ['encoded twice', ['/v1/transactions/%252e%252e/payouts', '/v1/transactions/%252fx']],
  ['control characters', ['/v1/transactions/%00/payouts', '/v1/transactions/%0d%0aX:%20y', '/v1/transactions/%7f']],
  [
    'overlong UTF-8',
    ['/v1/transactions/%c0%ae%c0%ae/payouts', '/v1/transactions/%c0%afx', '/v1/transactions/%e0%80%af'],
  ],
  ['half an octet', ['/v1/transactions/%', '/v1/transactions/%2', '/v1/transactions/%zz', '/v1/transactions/%u002e']],
  // RFC 3986 has none of these in a path. Node's parser refuses bytes beyond ASCII itself, and these not.
  ['no path characters', ['"', '<', '>', '[', ']', '^', '`', '{', '|', '}'].map((one) => `/v1/transactions/${one}`)],
  ['beyond ASCII', ['/v1/transactions/\u00c3\u00a9', '/v1/dev/payout\u00c5\u00bf', '/v1/transactions/\u00ff']],
  ['no path', ['*', 'localhost:443', 'v1/transactions', '?x']],
  // HAProxy CVE-2023-45539: `#` ended the path for one reader and not for the other.
  ['a fragment', ['/v1/transactions#/../payouts', '/v1/payouts#']],
];

t.test(
  'path traversal: dot segments and split segments are 400 after authentication and are not forwarded',
  async (t) => {
    const upstream = await startUpstream(t);
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, records });
    for (const [name, paths] of escapes) {
      for (const path of paths) {
        const answer = await ask(gateway, { path, headers });
        // Some never get through the HTTP parser, which does not ask for a key first.
        t.equal(answer.status, 400, `${name}: ${path}`);
        t.match(
          answer.body,
          /^\{"success":false,"message":"(?:Invalid request path|Malformed HTTP request)","data":null\}$/,
        );
        const unknown = await ask(gateway, { path, headers: [['x-api-key', 'svc_live_unknown']] });
        t.ok([400, 401].includes(unknown.status));
        t.notMatch(unknown.body, 'Invalid request path', 'nobody without a key learns of paths');
      }
    }
    t.same(upstream.seen, []);
    t.equal((await ask(gateway, { path: '/v1/payouts', headers })).status, 403);
    t.same(gateway.internalErrors, []);
  },
);

t.test('route, permission and upstream use the received path byte for byte', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, records });
  const rows: readonly (readonly [string, number, string?])[] = [
    ['/v1/transactions/%C3%A9', 200, '/transactions/%C3%A9'],
    ['/v1/transactions/a:b@c', 200, '/transactions/a:b@c'],
    ['/v1/transactions/...', 200, '/transactions/...'],
    // Below the routes no permission depends on a segment, so that it may be spelt in any way.
    ['/v1/transactions/%61', 200, '/transactions/%61'],
    ['/v1/transactions/a%20b;c=d/%3B', 400],
    ['/v1/transactions/a%20b;c=d/e%3B', 200, '/transactions/a%20b;c=d/e%3B'],
    ['/v1/transactions/Payouts.json', 200, '/transactions/Payouts.json'],
    ['/v1/transactions/..a;b/%2e%2ec/', 200, '/transactions/..a;b/%2e%2ec/'],
    ['/v1/dev/customers/payouts;%70', 200, '/dev/customers/payouts;%70'],
    ['/v1/dev/Customers.json', 200, '/dev/Customers.json'],
    ['/v1/dev/payouts-batch', 200, '/dev/payouts-batch'],
    ['/v1/dev/.payouts', 200, '/dev/.payouts'],
    // oauth2-proxy CVE-2025-54576: the query took part in the judgement of the path.
    ['/v1/transactions?path=/../payouts&x=%2f..%2f', 200, '/transactions?path=/../payouts&x=%2f..%2f'],
    ['https://localhost/v1/transactions?a=b', 200, '/transactions?a=b'],
    ['HTTPS://LOCALHOST:443/v1/transactions', 200, '/transactions'],
    ['https://localhost/v1/payouts', 403],
    ['https://localhost/v1/dev/Payouts', 404],
    ['https://localhost/v1/transactions/../payouts', 400],
    ['https://localhost', 404],
    // Traefik CVE-2026-48020: nothing is cut off but a whole segment.
    ['/v1../transactions', 404],
    ['/v1/transactionsx', 404],
    ['/v1/transactions.json', 404],
    ['/v1/payouts', 403],
    ['/v1/payouts/', 403],
    ['/v1/dev/payouts', 403],
    ['/v1/dev/payouts/', 403],
  ];
  for (const [path, status, expected] of rows) {
    upstream.seen.length = 0;
    t.equal((await ask(gateway, { path, headers })).status, status, path);
    t.equal(upstream.seen[0]?.url, expected, path);
  }
  for (const target of ['https://other.example/v1/transactions', 'https://localhost@other.example/v1/transactions']) {
    t.match((await ask(gateway, { path: target, headers })).body, 'Invalid Host header', target);
  }
});

t.test('a method override in a header or the query is ignored', async (t) => {
  // A method override behind the check turned a read into a write in several frameworks.
  const upstream = await startUpstream(t);
  const records = recordsOf(liveKey, { key: { permissions: ['transactions:read'] } });
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, records });
  t.equal((await ask(gateway, { method: 'POST', body: '{}', headers })).status, 403);
  const overridden = await ask(gateway, { headers: [...headers, ['X-HTTP-Method-Override', 'DELETE']] });
  t.equal(overridden.status, 200);
  t.equal(upstream.seen[0]?.method, 'GET');
  for (const method of ['get', 'Post', 'GET\u00a0', 'TRACK']) {
    t.match(await ask(gateway, { method, headers }), { status: 400 }, method);
  }
});

// Fastify itself answers for a path parameter of more than 100 characters, before any hook: whoever asked was told 500, with an
// error in the log, where a path that there is not was 401 or 403. That told strangers the paths, and rang alarms.
const ids = ['a'.repeat(101), '1'.repeat(101), 'a'.repeat(15_000)];

t.test('an overlong id reveals no path of the admin API without the token, and is 404 with it', async (t) => {
  const { app, call, logged } = await registryFixture(t, 'sqlite::memory:');
  const stranger = await app.inject('/nothing');
  for (const id of ids) {
    for (const [method, path, body] of [
      ['GET', `/merchants/${id}`, undefined],
      ['PATCH', `/merchants/${id}`, { name: 'x' }],
      ['POST', `/merchants/${id}/keys`, { environment: 'live' }],
      ['POST', `/keys/${id}/revoke`, undefined],
      ['GET', `/nothing/${id}`, undefined],
    ] as const) {
      const answer = await app.inject({ method, url: path });
      t.equal(answer.statusCode, 401, `${method} without the token`);
      t.equal(answer.body, stranger.body);
      t.equal((await call(method, path, { body })).status, 404, `${method} with it`);
    }
  }
  t.same(logged, []);
});

t.test('an overlong id reveals no path of the services', async (t) => {
  const { call, logged } = await servicesFixture(t);
  for (const id of ids) {
    for (const list of [
      '/transactions',
      '/dev/transactions',
      '/dev/payouts',
      '/dev/wallets',
      '/dev/customers',
      '/no',
    ]) {
      t.equal((await call(null, 'GET', `${list}/${id}`)).status, 403, list);
      t.equal((await call(merchantA, 'GET', `${list}/${id}`)).status, 404, list);
    }
  }
  t.same(logged, []);
});

/**
 * After some ten thousand calls V8 optimises `URL.canParse`, and on Node 20 it then refuses all Latin-1 beyond ASCII: a gateway
 * that had run for a while did not see an onion service behind such a name any more.
 */
t.test('host names parse the same after V8 has optimised the URL parser', (t) => {
  const disguised = ['https://abc.on\u{ad}ion/', 'abc.\u{ba}ni\u{ba}n', 'https://abc.on\u{ad}ion:8443/path'];
  const claims = ['https://m\u{fc}nchen.example', 'https://shop.ex\u{ad}ample', 'https://sh\u{f6}p.example'];
  const look = (): unknown[] => {
    const list = compileOriginPatterns(['m\u{fc}nchen.example', 'shop.example']);
    // Each with a path of its own: what was said before would be remembered.
    return [
      ...disguised.map((name) => namesOnionService([name])),
      ...claims.map((value) => list.matches({ header: 'referer', value: `${value}/${Math.random()}` })),
    ];
  };
  const expected = [true, true, true, true, true, false];
  t.strictSame(look(), expected);
  for (let count = 0; count < 100_000; count += 1) compileOriginPatterns(['shop.example']);
  t.strictSame(look(), expected);
  t.end();
});
