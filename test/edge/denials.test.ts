import t from 'tap';
import type { StoredRecords } from '../../src/adapters/memory/memory-records.js';
import type { Config, DeepPartial } from '../../src/config/schema.js';
import {
  ask,
  connect,
  exchangeBytes,
  liveKey,
  parseResponse,
  recordsOf,
  requestBytes,
  startTestGateway,
  startUpstream,
  testKey,
} from './harness.js';
import type { Ask } from './harness.js';

/** The contract's table, repeated here so that a change of the source fails the test. */
const table: readonly {
  code: string;
  status: number;
  message: string;
  /** The reason in the log line of a GET; clients never see it. */
  reason: string;
  /** This and the following fields trigger the denial. */
  config?: DeepPartial<Config>;
  records?: StoredRecords;
  torExits?: readonly string[];
  headers: readonly (readonly [string, string])[];
  plain?: boolean;
}[] = [
  {
    code: 'https_required',
    status: 401,
    message: 'API requests must use HTTPS (TLS)',
    reason: 'the client connection does not use TLS',
    headers: [['x-api-key', liveKey]],
    plain: true,
  },
  {
    code: 'tor_blocked',
    status: 401,
    message: 'Tor traffic is not allowed',
    reason: '127.0.0.1 is a Tor exit',
    torExits: ['127.0.0.1'],
    headers: [['x-api-key', liveKey]],
  },
  {
    code: 'key_required',
    status: 401,
    message: 'API Key is required',
    reason: 'x-api-key is missing or empty',
    headers: [],
  },
  {
    code: 'key_format',
    status: 401,
    message: 'Invalid API key format',
    reason: 'x-api-key lacks the prefix of an API key, or was sent more than once',
    headers: [['x-api-key', 'SVC_LIVE_abc']],
  },
  {
    code: 'test_key_in_live',
    status: 401,
    message: 'Test API keys are not valid in production',
    reason: 'the key is a test key, but this gateway accepts only live keys',
    headers: [['x-api-key', testKey]],
  },
  {
    code: 'live_key_in_test',
    status: 401,
    message: 'Live API keys are not valid in this environment',
    reason: 'the key is a live key, but this gateway accepts only test keys',
    config: { environment: 'test' },
    headers: [['x-api-key', liveKey]],
  },
  {
    code: 'key_unknown',
    status: 401,
    message: 'Invalid API Key',
    reason: 'the key store has no record of this key',
    headers: [['x-api-key', `${liveKey}x`]],
  },
  {
    code: 'key_inactive',
    status: 401,
    message: 'API Key is inactive or revoked',
    reason: 'the key is REVOKED (record revision 1)',
    records: recordsOf(liveKey, { key: { status: 'REVOKED' } }),
    headers: [['x-api-key', liveKey]],
  },
  {
    code: 'merchant_inactive',
    status: 401,
    message: 'Merchant is not active',
    reason: 'the merchant is SUSPENDED (record revision 1)',
    records: recordsOf(liveKey, { merchant: { status: 'SUSPENDED' } }),
    headers: [['x-api-key', liveKey]],
  },
  {
    code: 'merchant_not_live',
    status: 401,
    message: 'Merchant is not live',
    reason: 'goLive of the merchant is false (record revision 1)',
    records: recordsOf(liveKey, { merchant: { goLive: false } }),
    headers: [['x-api-key', liveKey]],
  },
  {
    code: 'ip_not_allowed',
    status: 401,
    message: 'IP address not allowed',
    reason: '127.0.0.1 is not in the IP allowlist of the merchant (ranges in the list: 2)',
    records: recordsOf(liveKey, { merchant: { ipAllowlist: ['203.0.113.0/24', '2001:db8::/32'] } }),
    headers: [['x-api-key', liveKey]],
  },
  {
    code: 'origin_not_allowed',
    status: 401,
    message: 'Origin not allowed',
    reason: 'Origin evilshop.example is not on the origin allowlist',
    records: recordsOf(liveKey, { merchant: { originAllowlist: ['shop.example'] } }),
    headers: [
      ['x-api-key', liveKey],
      ['origin', 'https://evilshop.example'],
    ],
  },
  {
    code: 'permission_denied',
    status: 403,
    message: 'Forbidden',
    reason: 'the key lacks the permission transactions:read (record revision 1)',
    records: recordsOf(liveKey, { key: { permissions: ['customers:*'] } }),
    headers: [['x-api-key', liveKey]],
  },
];

const fiveMegabytes = 5 * 1024 * 1024;

for (const row of table) {
  t.test(
    `${row.code}: the exact response for any method, path and body; nothing is sent to the upstream`,
    async (t) => {
      const upstream = await startUpstream(t);
      const gateway = await startTestGateway(t, {
        upstreamUrl: upstream.url,
        config: row.config ?? {},
        ...(row.records === undefined ? {} : { records: row.records }),
        torExits: row.torExits ?? [],
      });
      const open = () => (row.plain === true ? connect(gateway.http, null) : connect(gateway.https, gateway.ca));
      const send = async (what: Ask) =>
        parseResponse(await exchangeBytes(open(), requestBytes({ headers: row.headers, ...what })));
      const body = `{"success":false,"message":"${row.message}","data":null}`;

      const asks: Ask[] = [{}, { method: 'OPTIONS' }, { method: 'POST', path: '/v1/payouts', body: '{}' }];
      // The gateway's own routes, and paths without a route, have no resource to authorize.
      if (row.code !== 'permission_denied')
        asks.push(
          { path: '/v1/whoami' },
          { path: '/v1/openapi.json' },
          { path: '/nowhere' },
          { method: 'PROPFIND', path: '/%zz' },
        );
      for (const what of asks) {
        const response = await send(what);
        t.match(
          { status: response.status, body: response.body },
          { status: row.status, body },
          `${what.method ?? 'GET'} ${what.path ?? ''}`,
        );
        t.equal(response.header('content-type'), 'application/json; charset=utf-8');
        t.equal(response.header('content-length'), String(body.length));
        t.equal(response.header('cache-control'), 'no-store');
        t.match(response.header('x-request-id'), /^[0-9A-HJKMNP-TV-Z]{26}$/);
        t.equal(response.header('www-authenticate') !== undefined, row.status === 401, 'a challenge only with 401');
      }

      const head = await send({ method: 'HEAD' });
      t.equal(head.status, row.status);
      t.equal(head.body, '', 'a response to HEAD has no body');
      t.equal(head.header('content-length'), String(body.length));

      const unread = `POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${fiveMegabytes}\r\n${row.headers
        .map(([name, value]) => `${name}: ${value}\r\n`)
        .join('')}\r\n`;
      const early = parseResponse(await exchangeBytes(open(), unread));
      t.match(
        { status: early.status, body: early.body },
        { status: row.status, body },
        'the response does not wait for a body',
      );
      t.equal(early.header('connection'), 'close');
      const whole = parseResponse(await exchangeBytes(open(), unread + 'x'.repeat(fiveMegabytes)));
      t.match(
        { status: whole.status, body: whole.body },
        { status: row.status, body },
        'a body that was sent does no harm',
      );

      t.same(upstream.seen, [], 'the upstream got no request');
      t.equal(upstream.sockets.size, 0, 'not even a connection');
      t.match(gateway.lines[0], { event: { code: row.code, reason: row.reason } });
      t.ok(
        gateway.lines.every((line) => (line.event as { reason?: string }).reason !== undefined),
        'each line has its reason in words',
      );
      t.ok(
        gateway.lines.every((line) => (line.event as { code: string }).code === row.code),
        'each line has its reason',
      );
      t.equal(gateway.lines.length, asks.length + 3, 'one line per request');
    },
  );
}

t.test('a valid key learns which paths exist: 404, 405, and 400 for ambiguous paths', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const headers = [['x-api-key', liveKey]] as const;
  const cases: [Ask, number, string][] = [
    [{ path: '/nowhere' }, 404, 'Not found'],
    [{ path: '/v1' }, 404, 'Not found'],
    [{ path: '/v1/payoutsx' }, 404, 'Not found'],
    ...[
      '/v1/transactions%2f1',
      '/v1/transactions%5c1',
      '/v1/transactions;a=b',
      '/v1/dev/%70ayouts',
      '/v1/dev/Payouts',
      '/v1/dev/payouts.json',
      '/%76%31/transactions',
      '/v1/%zz',
    ].map((path): [Ask, number, string] => [{ path }, 404, 'Not found']),
    [{ method: 'PROPFIND' }, 405, 'Method not allowed'],
    [{ method: 'TRACE' }, 405, 'Method not allowed'],
    ...[
      '/v1//transactions',
      '/v1/./transactions',
      '/v1/dev/../payouts',
      '/v1/transactions/..',
      '/v1/transactions\\1',
      '/v1/transactions/%00',
      '/v1/transactions/%0d%0a',
      '/v1/transactions/%252e',
      '/v1/transactions/..;/payouts',
      'ftp://localhost/v1/transactions',
      'https://localhost/v1//transactions',
      '*',
    ].map((path): [Ask, number, string] => [{ path }, 400, 'Invalid request path']),
  ];
  for (const [what, status, message] of cases) {
    const response = await ask(gateway, { ...what, headers });
    t.match(
      { status: response.status, body: response.body },
      { status, body: JSON.stringify({ success: false, message, data: null }) },
      `${what.method ?? 'GET'} ${what.path ?? ''}`,
    );
  }
  const traceResponse = await ask(gateway, { method: 'TRACE', headers });
  t.equal(traceResponse.header('allow'), 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS');
  t.same(upstream.seen, []);
  t.same(gateway.internalErrors, []);
});
