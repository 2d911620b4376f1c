import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { namesOnionService } from '../../src/policy/origins.js';
import { compileOriginPatterns } from '../../src/policy/origin-patterns.js';
import { consoleFixture, origin } from '../console/console-fixture.js';
import { ask, liveKey, recordsOf, startTestGateway, startUpstream } from '../edge/harness.js';
import { registryFixture } from '../registry/registry-fixture.js';
import { merchantA, servicesFixture } from '../services/services-fixture.js';

// If the gateway and the service interpret a path differently, a caller with permission for one route reaches another.
// The key of these tests may use transactions and customers. The route /dev leads to customers.
const headers = [['x-api-key', liveKey]] as const;
const records = recordsOf(liveKey, { key: { permissions: ['transactions:*', 'customers:*'] } });

const methods = ['GET', 'POST'] as const;

/** Other spellings of route segments. Each one has let a request through to a protected path in some product. */
const lookalikes: readonly (readonly [string, readonly string[]])[] = [
  // Express, ASP.NET and Spring ignore letter case in paths by default.
  ['letter case', ['/v1/dev/payoutS', '/v1/dev/PAYOUTS/1', '/v1/Payouts', '/v1/DEV/payouts', '/V1/dev/payouts']],
  // Spring, Rails and ASP.NET remove a suffix. Windows removes trailing dots.
  ['suffix', ['/v1/dev/payouts.json', '/v1/dev/payouts.', '/v1/dev/payouts.a.b/1', '/v1/payouts.xml', '/v1.1/dev']],
  ['letter case and suffix', ['/v1/dev/PayoutS.JSON', '/v1/Dev.x/payouts', '/V1./dev/payouts']],
  // F5 CVE-2020-5902, Tomcat, Jetty: everything after `;` is removed after the check.
  ['path parameters', ['/v1/dev/payouts;x', '/v1/dev/payouts;', '/v1/payouts;a=b/1', '/v1/dev;/payouts', '/v1;x/dev']],
  ['path parameters and dot segments', ['/v1/transactions;/../payouts', '/v1/dev/..;/payouts', '/v1/dev;/../payouts']],
  // Envoy CVE-2021-29492, Traefik CVE-2025-66490, APISIX CVE-2021-43557: decoded after the check.
  [
    'percent-encoded letters',
    ['/v1/dev/%70ayouts', '/v1/dev/payout%73/1', '/%76%31/payouts', '/v1/%64ev/payouts', '/v1/%2570ayouts'],
  ],
  [
    'percent-encoded suffix',
    ['/v1/dev/payouts%20', '/v1/dev/payouts%3bx', '/v1/dev/payouts%2ejson', '/v1/dev/payouts%00'],
  ],
  [
    'percent-encoded slashes',
    ['/v1/dev/payouts%2f1', '/v1/dev%2fpayouts', '/v1/dev/x%2f..%2fpayouts', '/v1%5c..%5cv1'],
  ],
  ['percent-encoded dots', ['/v1/dev/%2e%2e/payouts', '/v1%2e%2e/payouts', '/v1/%2e/payouts', '/v1/dev/.%2E/payouts']],
  // Decoders disagree on invalid UTF-8 and on wide letters. Some read `%c0%af` as a slash, and `%ff` or `%ef%bd%90` as a
  // letter.
  [
    'non-ASCII bytes',
    ['/v1/dev%c0%afpayouts', '/v1/dev/payouts%ff', '/v1/dev/%ef%bd%90ayouts', '/v1/dev/payouts%c2%a0'],
  ],
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
  t.same(new Set(codes), new Set(['not_found', 'key_unknown', 'key_required']), 'no request is logged as accepted');
  t.notOk(gateway.lines.some((line) => 'route' in (line.gateway as object)));
  t.equal((await ask(gateway, { path: '/v1/dev/payouts', headers })).status, 403);
  t.same(gateway.internalErrors, []);
});

const escapes: readonly (readonly [string, readonly string[]])[] = [
  // reply-from CVE-2021-21321 and http-proxy CVE-2021-21322: the path leaves its prefix or selects another origin.
  [
    'path leaves its prefix',
    ['/v1/transactions/../payouts', '/v1/transactions/..', '/v1//evil.example/payouts', '//v1/payouts'],
  ],
  ['another origin', ['/v1/transactions//evil.example', '/v1/transactions/\\\\evil.example', '/\\evil.example/v1']],
  // Envoy CVE-2019-9901: paths were compared before they were normalised.
  // Traefik CVE-2025-32431, CVE-2025-47952 and CVE-2026-40912: dot segments appear after the check.
  [
    'dot segments',
    ['/v1/transactions/./x', '/v1/transactions/%2e%2e/payouts', '/v1/transactions/.%2E/payouts', '/v1/dev/../payouts'],
  ],
  ['encoded slashes', ['/v1/transactions/..%2fpayouts', '/v1/transactions/%2Fx', '/v1/transactions/x%5c..%5cpayouts']],
  ['backslashes', ['/v1/transactions\\..\\payouts', '/v1/transactions/..\\payouts', '/v1\\payouts']],
  [
    'dot segments with path parameters',
    ['/v1/transactions/..;/payouts', '/v1/transactions/.;x', '/v1/transactions/%2e%2E%3bx/y'],
  ],
  ['segment of only path parameters', ['/v1/transactions/;x/..', '/v1/transactions/;/x', '/v1/transactions/%3Bx']],
  ['double encoding', ['/v1/transactions/%252e%252e/payouts', '/v1/transactions/%252fx']],
  ['control characters', ['/v1/transactions/%00/payouts', '/v1/transactions/%0d%0aX:%20y', '/v1/transactions/%7f']],
  [
    'overlong UTF-8',
    ['/v1/transactions/%c0%ae%c0%ae/payouts', '/v1/transactions/%c0%afx', '/v1/transactions/%e0%80%af'],
  ],
  [
    'invalid percent-encoding',
    ['/v1/transactions/%', '/v1/transactions/%2', '/v1/transactions/%zz', '/v1/transactions/%u002e'],
  ],
  // RFC 3986 does not allow these characters in a path. Node's parser rejects non-ASCII bytes, but accepts these.
  [
    'characters not allowed in a path',
    ['"', '<', '>', '[', ']', '^', '`', '{', '|', '}'].map((one) => `/v1/transactions/${one}`),
  ],
  ['target without an absolute path', ['*', 'localhost:443', 'v1/transactions', '?x']],
  // HAProxy CVE-2023-45539: `#` ended the path for one of two programs.
  ['fragment', ['/v1/transactions#/../payouts', '/v1/payouts#']],
];

t.test(
  'path traversal: dot segments and split segments are 400 after authentication and are not forwarded',
  async (t) => {
    const upstream = await startUpstream(t);
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, records });
    for (const [name, paths] of escapes) {
      for (const path of paths) {
        const response = await ask(gateway, { path, headers });
        // The HTTP parser rejects some of these paths. It does so before the key is checked.
        t.equal(response.status, 400, `${name}: ${path}`);
        t.match(
          response.body,
          /^\{"success":false,"message":"(?:Invalid request path|Malformed HTTP request)","data":null\}$/,
        );
        const unknown = await ask(gateway, { path, headers: [['x-api-key', 'svc_live_unknown']] });
        t.ok([400, 401].includes(unknown.status));
        t.notMatch(unknown.body, 'Invalid request path', 'without a valid key, no path is revealed');
      }
    }
    t.same(upstream.seen, []);
    t.equal((await ask(gateway, { path: '/v1/payouts', headers })).status, 403);
    t.same(gateway.internalErrors, []);
  },
);

// The HTTP parser rejects these bytes, so the response is the same with and without a key, and reveals no route.
t.test('an unencoded non-ASCII byte in path or query is a malformed request, whatever the key', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, records });
  const targets: readonly (readonly [where: string, target: string])[] = [
    ['at a configured level', '/v1/dev/payout\u00c5\u00bf'],
    ['below the configured levels', '/v1/transactions/\u00c3\u00a9'],
    ['not UTF-8', '/v1/transactions/\u00ff'],
    ['in the query', '/v1/transactions?name=\u00c3\u00a9'],
    ['outside of all routes', '/\u00c3\u00a9'],
  ];
  for (const [where, path] of targets) {
    for (const sent of [headers, [['x-api-key', 'svc_live_unknown']] as const, []]) {
      const { status, body } = await ask(gateway, { path, headers: sent });
      t.same([status, body], [400, '{"success":false,"message":"Malformed HTTP request","data":null}'], where);
    }
  }
  t.same(new Set(gateway.lines.map((line) => (line.event as { code: string }).code)), new Set(['malformed_request']));
  t.same(upstream.seen, []);
});

t.test('route, permission and upstream use the received path byte for byte', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, records });
  const rows: readonly (readonly [string, number, string?])[] = [
    ['/v1/transactions/%C3%A9', 200, '/transactions/%C3%A9'],
    ['/v1/transactions/a:b@c', 200, '/transactions/a:b@c'],
    ['/v1/transactions/...', 200, '/transactions/...'],
    // No permission depends on a segment below the route, so any spelling is allowed there.
    ['/v1/transactions/%61', 200, '/transactions/%61'],
    ['/v1/transactions/a%20b;c=d/%3B', 400],
    ['/v1/transactions/a%20b;c=d/e%3B', 200, '/transactions/a%20b;c=d/e%3B'],
    ['/v1/transactions/Payouts.json', 200, '/transactions/Payouts.json'],
    ['/v1/transactions/..a;b/%2e%2ec/', 200, '/transactions/..a;b/%2e%2ec/'],
    ['/v1/dev/customers/payouts;%70', 200, '/dev/customers/payouts;%70'],
    ['/v1/dev/Customers.json', 200, '/dev/Customers.json'],
    ['/v1/dev/payouts-batch', 200, '/dev/payouts-batch'],
    ['/v1/dev/.payouts', 200, '/dev/.payouts'],
    // oauth2-proxy CVE-2025-54576: the check of the path included the query.
    ['/v1/transactions?path=/../payouts&x=%2f..%2f', 200, '/transactions?path=/../payouts&x=%2f..%2f'],
    ['https://localhost/v1/transactions?a=b', 200, '/transactions?a=b'],
    ['HTTPS://LOCALHOST:443/v1/transactions', 200, '/transactions'],
    ['https://localhost/v1/payouts', 403],
    ['https://localhost/v1/dev/Payouts', 404],
    ['https://localhost/v1/transactions/../payouts', 400],
    ['https://localhost', 404],
    // Traefik CVE-2026-48020: a prefix was removed that ended within a segment.
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
  // Several frameworks apply a method override after the permission check, which turns a read into a write.
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

// Fastify rejects a path parameter of more than 100 characters before any hook runs. Regression: the response was 500,
// with an error in the log, while an unknown path got 401 or 403. This revealed the paths without authentication, and
// fired alerts.
const overlongIds = ['a'.repeat(101), '1'.repeat(101), 'a'.repeat(15_000)];

t.test('an overlong id reveals no path of the admin API without the token, and is 404 with it', async (t) => {
  const { app, call, logged } = await registryFixture(t, 'sqlite::memory:');
  const unknownPath = await app.inject('/nothing');
  for (const id of overlongIds) {
    for (const [method, path, body] of [
      ['GET', `/merchants/${id}`, undefined],
      ['PATCH', `/merchants/${id}`, { name: 'x' }],
      ['POST', `/merchants/${id}/keys`, { environment: 'live' }],
      ['POST', `/keys/${id}/revoke`, undefined],
      ['GET', `/nothing/${id}`, undefined],
    ] as const) {
      const response = await app.inject({ method, url: path });
      t.equal(response.statusCode, 401, `${method} without the token`);
      t.equal(response.body, unknownPath.body);
      t.equal((await call(method, path, { body })).status, 404, `${method} with the token`);
    }
  }
  t.same(logged, []);
});

t.test('an overlong id reveals no path of the services', async (t) => {
  const { call, logged } = await servicesFixture(t);
  for (const id of overlongIds) {
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
 * V8 optimises `URL.canParse` after some ten thousand calls. On Node 20 it then rejects every Latin-1 character beyond
 * ASCII. Regression: a gateway that had run for a while no longer recognised an onion service in a name with such a
 * character.
 */
t.test('host names parse the same after V8 has optimised the URL parser', (t) => {
  const disguisedOnions = ['https://abc.on\u{ad}ion/', 'abc.\u{ba}ni\u{ba}n', 'https://abc.on\u{ad}ion:8443/path'];
  const claims = ['https://m\u{fc}nchen.example', 'https://shop.ex\u{ad}ample', 'https://sh\u{f6}p.example'];
  const evaluate = (): unknown[] => {
    const list = compileOriginPatterns(['m\u{fc}nchen.example', 'shop.example']);
    // Each claim gets a new path, because results are cached.
    return [
      ...disguisedOnions.map((name) => namesOnionService([name])),
      ...claims.map((value) => list.matches({ header: 'referer', value: `${value}/${Math.random()}` })),
    ];
  };
  const expected = [true, true, true, true, true, false];
  t.strictSame(evaluate(), expected);
  for (let count = 0; count < 100_000; count += 1) compileOriginPatterns(['shop.example']);
  t.strictSame(evaluate(), expected);
  t.end();
});

t.test('no path leads out of the assets of the console, and none is an error of the server', async (t) => {
  const { console } = await consoleFixture(t, 'sqlite::memory:');
  await console.listen({ host: '127.0.0.1', port: 0 });
  const { port } = console.server.address() as AddressInfo;
  for (const name of [
    '%2e%2e/index.html',
    '..%2findex.html',
    '../index.html',
    '.',
    '//etc/passwd',
    'main-1.js/',
    '%00',
    '.hidden',
  ]) {
    // Sends the path unchanged; URL would resolve the dots.
    const request = http.get({ port, path: `/console/assets/${name}`, headers: { host: new URL(origin).host } });
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    response.resume();
    t.ok([400, 404].includes(response.statusCode ?? 0), `${name}: ${String(response.statusCode)}`);
  }
});
