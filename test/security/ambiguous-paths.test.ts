import t from 'tap';
import { ask, liveKey, recordsOf, startTestGateway, startUpstream } from '../http/harness.js';

// Paths that the gateway and the service behind it read differently let a caller pass one route's permission and reach
// another one. The key of these tests may use transactions and nothing else.
const headers = [['x-api-key', liveKey]] as const;

const escapes: readonly (readonly [string, readonly string[]])[] = [
  // reply-from CVE-2021-21321 and http-proxy CVE-2021-21322: a path that leaves its prefix, or becomes another origin.
  [
    'leaving the prefix',
    ['/v1/transactions/../payouts', '/v1/transactions/..', '/v1//evil.example/payouts', '//v1/payouts'],
  ],
  ['another origin', ['/v1/transactions//evil.example', '/v1/transactions/\\\\evil.example', '/\\evil.example/v1']],
  // Envoy CVE-2019-9901 and CVE-2021-29492: paths that were compared as they came and normalised behind it.
  // APISIX CVE-2021-43557, Traefik CVE-2025-32431 and CVE-2025-47952: the path that was judged was not the one that was routed.
  // Traefik CVE-2026-40912: a dot segment that appears when the prefix is cut off.
  [
    'normalised later',
    [
      '/v1%2e%2e/payouts',
      '/v1%2e/payouts',
      '/v1/transactions/./x',
      '/v1/transactions/%2e%2e/payouts',
      '/v1/transactions/.%2E/payouts',
    ],
  ],
  ['encoded slashes', ['/v1/transactions%2f..%2fpayouts', '/v1/transactions%2Fx', '/v1/transactions%5c..%5cpayouts']],
  ['backslashes', ['/v1/transactions\\..\\payouts', '/v1/transactions/..\\payouts', '/v1\\payouts']],
  // F5 CVE-2020-5902: what stands behind `;` is cut off behind the check.
  ['parameters', ['/v1/transactions;/../payouts', '/v1/transactions/..;/payouts', '/v1/transactions;a=b', '/v1/x%3bx']],
  ['encoded twice', ['/v1/transactions/%252e%252e/payouts', '/v1/transactions%252fx', '/v1/%2570ayouts']],
  ['needlessly encoded', ['/v1/%70ayouts', '/%76%31/payouts', '/v1/dev/%70ayouts', '/v1/transactions/%61']],
  // Traefik CVE-2025-66490: encoded separators that the router does not see and the service does.
  ['control characters', ['/v1/transactions%00/payouts', '/v1/transactions%0d%0aX:%20y', '/v1/transactions/%7f']],
  ['overlong UTF-8', ['/v1/transactions/%c0%ae%c0%ae/payouts', '/v1/transactions%c0%afx', '/v1/%e0%80%af']],
  ['half an octet', ['/v1/transactions/%', '/v1/transactions/%2', '/v1/transactions/%zz', '/v1/transactions/%u002e']],
  ['no path', ['*', 'localhost:443', 'v1/transactions', '?x']],
  // HAProxy CVE-2023-45539: `#` ended the path for one reader and not for the other.
  ['a fragment', ['/v1/transactions#/../payouts', '/v1/payouts#']],
];

t.test('a path that can be read in two ways is 400 after authentication, and goes nowhere', async (t) => {
  const upstream = await startUpstream(t);
  const records = recordsOf(liveKey, { key: { permissions: ['transactions:*'] } });
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
});

t.test('route, permission and service see the one path that came, letter by letter', async (t) => {
  const upstream = await startUpstream(t);
  const records = recordsOf(liveKey, { key: { permissions: ['transactions:*'] } });
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, records });
  const rows: readonly (readonly [string, number, string?])[] = [
    ['/v1/transactions/%C3%A9', 200, '/transactions/%C3%A9'],
    ['/v1/transactions/a:b@c', 200, '/transactions/a:b@c'],
    ['/v1/transactions/...', 200, '/transactions/...'],
    // oauth2-proxy CVE-2025-54576: the query took part in the judgement of the path.
    ['/v1/transactions?path=/../payouts&x=%2f..%2f', 200, '/transactions?path=/../payouts&x=%2f..%2f'],
    ['https://localhost/v1/transactions?a=b', 200, '/transactions?a=b'],
    ['HTTPS://LOCALHOST:443/v1/transactions', 200, '/transactions'],
    ['https://localhost/v1/payouts', 403],
    ['https://localhost/v1/transactions/../payouts', 400],
    ['https://localhost', 404],
    ['/V1/transactions', 404],
    ['/v1/Transactions', 404],
    // Traefik CVE-2026-48020: nothing is cut off but a whole segment.
    ['/v1../transactions', 404],
    ['/v1/transactionsx', 404],
    ['/v1/transactions.json', 404],
    ['/v1/payouts', 403],
    ['/v1/payouts/', 403],
    ['/v1/dev/payouts', 403],
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

t.test('a method in a header or in the query is none', async (t) => {
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
