import { once } from 'node:events';
import type http from 'node:http';
import t from 'tap';
import { type KeyStore, KeyStoreUnavailable } from '../../src/gateway/key-store.js';
import { Readiness } from '../../src/edge/observe/readiness.js';
import { ask, connect, exchangeBytes, liveKey, parseResponse, recordsOf, requestBytes } from './harness.js';
import { startTestGateway, startUpstream } from './harness.js';

const key = ['x-api-key', liveKey] as const;

function envelope(message: string): string {
  return JSON.stringify({ success: false, message, data: null });
}

/** Returns the status codes of all responses in the bytes that a connection received. */
function statuses(received: string): number[] {
  return [...received.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map((match) => Number(match[1]));
}

t.test(
  'a request that the HTTP parser refuses gets the envelope and one line, and its connection is closed',
  async (t) => {
    const upstream = await startUpstream(t);
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
    const valid = `Host: localhost\r\nx-api-key: ${liveKey}\r\n`;
    const cases: [string, string, number, string, string][] = [
      ['garbage', 'hello\r\n\r\n', 400, 'Malformed HTTP request', 'malformed_request'],
      [
        'an unknown method',
        `FOO /v1/payouts HTTP/1.1\r\n${valid}\r\n`,
        400,
        'Malformed HTTP request',
        'malformed_request',
      ],
      ['a bad version', `GET /v1/payouts HTTP/9.9\r\n${valid}\r\n`, 400, 'Malformed HTTP request', 'malformed_request'],
      ['no version', 'GET /v1/transactions\r\n\r\n', 400, 'Malformed HTTP request', 'malformed_request'],
      [
        'two Content-Length headers',
        `POST /v1/payouts HTTP/1.1\r\n${valid}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}`,
        400,
        'Malformed HTTP request',
        'malformed_request',
      ],
      [
        'Content-Length and Transfer-Encoding',
        `POST /v1/payouts HTTP/1.1\r\n${valid}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
        400,
        'Malformed HTTP request',
        'malformed_request',
      ],
      [
        'headers above the limit',
        `GET /v1/payouts HTTP/1.1\r\n${valid}x: ${'y'.repeat(20_000)}\r\n\r\n`,
        431,
        'Request header fields too large',
        'headers_too_large',
      ],
      [
        'no Host',
        `GET /v1/payouts HTTP/1.1\r\nx-api-key: ${liveKey}\r\n\r\n`,
        400,
        'Invalid Host header',
        'invalid_host',
      ],
      [
        'two Hosts',
        `GET /v1/payouts HTTP/1.1\r\n${valid}Host: localhost\r\n\r\n`,
        400,
        'Invalid Host header',
        'invalid_host',
      ],
      [
        'a Host with a path',
        `GET /v1/payouts HTTP/1.1\r\nHost: a/b\r\n\r\n`,
        400,
        'Invalid Host header',
        'invalid_host',
      ],
    ];
    for (const [name, bytes, status, message, code] of cases) {
      gateway.lines.length = 0;
      const socket = connect(gateway.https, gateway.ca);
      const received = await exchangeBytes(socket, bytes, (text) => name.includes('Host') && text.endsWith('}'));
      const response = parseResponse(received);
      t.match({ status: response.status, body: response.body }, { status, body: envelope(message) }, name);
      t.same(statuses(received), [status], `${name}: one response`);
      t.equal(response.header('content-type'), 'application/json; charset=utf-8');
      t.equal(response.header('content-length'), String(response.body.length));
      t.match(response.header('x-request-id'), /^[0-9A-Z]{26}$/);
      t.match(gateway.lines, [{ event: { code }, http: { response: { status_code: status } } }], `${name}: one line`);
      t.equal(gateway.lines.length, 1);
    }
    t.same(upstream.seen, []);
  },
);

// In CVE-2021-32777, Envoy checked only the last value of a repeated header.
t.test('two keys, or a key in the query or in the body, count as no key', async (t) => {
  const gateway = await startTestGateway(t);
  const cases = [
    [{ headers: [key, key] }, 'Invalid API key format'],
    [{ headers: [key, ['X-Api-Key', '']] as const }, 'Invalid API key format'],
    [{ headers: [['x-api-key', '']] as const }, 'API Key is required'],
    [{ headers: [['x-api-key', '  ']] as const }, 'API Key is required'],
    [{ path: `/v1/transactions?x-api-key=${liveKey}` }, 'API Key is required'],
    [{ method: 'POST', path: '/v1/payouts', body: `{"x-api-key":"${liveKey}"}` }, 'API Key is required'],
    [{ headers: [['authorization', `Bearer ${liveKey}`]] as const }, 'API Key is required'],
    [{ headers: [['x_api_key', liveKey]] as const }, 'API Key is required'],
  ] as const;
  for (const [what, message] of cases) {
    t.equal((await ask(gateway, what)).body, envelope(message), JSON.stringify(what));
  }
  t.notMatch(JSON.stringify(gateway.lines), /4Vz1cQ8mXo2/, 'no line contains a key');
});

t.test('a trusted proxy decides the client address and protocol', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { trustedProxies: ['127.0.0.0/8', '10.0.0.0/8'] },
    torExits: ['198.51.100.66'],
    records: recordsOf(liveKey, { merchant: { ipAllowlist: ['203.0.113.7', '2001:db8::/32'] } }),
  });
  const forwarded = (value: string, ...more: (readonly [string, string])[]) => ({
    headers: [key, ['x-forwarded-for', value] as const, ...more],
  });
  const cases: [Parameters<typeof ask>[1], number, string | null][] = [
    [forwarded('203.0.113.7'), 200, null],
    [forwarded('1.1.1.1, 203.0.113.7, 10.9.9.9'), 200, null],
    [forwarded('203.0.113.7, 1.1.1.1'), 401, 'IP address not allowed'],
    [forwarded('::ffff:203.0.113.7'), 200, null],
    [forwarded('2001:0DB8:0::1'), 200, null],
    [forwarded('198.51.100.66'), 401, 'Tor traffic is not allowed'],
    [forwarded('::ffff:198.51.100.66'), 401, 'Tor traffic is not allowed'],
    [{ headers: [key] }, 401, 'IP address not allowed'],
    [forwarded('203.0.113.7:443'), 400, 'Invalid X-Forwarded-For header'],
    [forwarded('203.0.113.07'), 400, 'Invalid X-Forwarded-For header'],
    [forwarded('fe80::1%eth0'), 400, 'Invalid X-Forwarded-For header'],
    [forwarded('unknown'), 400, 'Invalid X-Forwarded-For header'],
    [forwarded(''), 400, 'Invalid X-Forwarded-For header'],
    [forwarded('203.0.113.7, , 10.0.0.1'), 400, 'Invalid X-Forwarded-For header'],
    [forwarded('garbage, 203.0.113.7'), 200, null],
    [forwarded('203.0.113.7', ['x-forwarded-proto', 'http']), 401, 'API requests must use HTTPS (TLS)'],
    [forwarded('203.0.113.7', ['x-forwarded-proto', 'HTTPS']), 401, 'API requests must use HTTPS (TLS)'],
    [forwarded('203.0.113.7', ['x-forwarded-proto', 'https, http']), 401, 'API requests must use HTTPS (TLS)'],
    [forwarded('203.0.113.7', ['x-forwarded-proto', 'https']), 200, null],
  ];
  for (const [what, status, message] of cases) {
    const response = await ask(gateway, what);
    t.equal(response.status, status, JSON.stringify(what.headers));
    if (message !== null) t.equal(response.body, envelope(message));
  }
  const plain = parseResponse(
    await exchangeBytes(
      connect(gateway.http, null),
      requestBytes(forwarded('203.0.113.7', ['x-forwarded-proto', 'https'])),
    ),
  );
  t.equal(plain.status, 200, 'TLS that ended at the proxy counts as TLS');
  t.equal(upstream.seen.at(-1)?.headers['x-forwarded-for'], '203.0.113.7', 'the client address that was judged');
  t.equal(upstream.seen.at(-1)?.headers['x-forwarded-proto'], 'https');

  const own = await ask(gateway, forwarded('203.0.113.7', ['x-request-id', 'proxy-17.a_b']));
  t.equal(own.header('x-request-id'), 'proxy-17.a_b', "a trusted proxy's request id is used");
  t.equal(upstream.seen.at(-1)?.headers['x-request-id'], 'proxy-17.a_b');
  for (const id of ['a b', 'x'.repeat(65), 'é', '']) {
    const replaced = await ask(gateway, forwarded('203.0.113.7', ['x-request-id', id]));
    t.match(replaced.header('x-request-id'), /^[0-9A-Z]{26}$/, 'only a short and safe request id is used');
  }
});

t.test('an untrusted peer cannot choose an address, a protocol or a request id', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    records: recordsOf(liveKey, { merchant: { ipAllowlist: ['127.0.0.1'] } }),
  });
  const headers = [
    key,
    ['x-forwarded-for', '203.0.113.7'],
    ['x-forwarded-proto', 'https'],
    ['x-real-ip', '203.0.113.7'],
    ['x-request-id', 'chosen'],
  ] as const;
  const response = await ask(gateway, { headers });
  t.equal(response.status, 200);
  t.not(response.header('x-request-id'), 'chosen');
  t.equal(upstream.seen[0]?.headers['x-forwarded-for'], '127.0.0.1');
  const plain = parseResponse(await exchangeBytes(connect(gateway.http, null), requestBytes({ headers })));
  t.equal(plain.body, envelope('API requests must use HTTPS (TLS)'));
});

t.test('an onion service in Host, Origin or Referer is Tor traffic', async (t) => {
  const gateway = await startTestGateway(t);
  const cases = [
    { headers: [key, ['origin', 'http://abcdef.onion']] as const },
    { headers: [key, ['referer', 'https://ABCDEF.ONION.:8443/x']] as const },
    { headers: [key], host: 'abcdef.onion:443' },
  ];
  for (const what of cases) {
    t.equal((await ask(gateway, what)).body, envelope('Tor traffic is not allowed'), JSON.stringify(what));
  }
  t.equal((await ask(gateway, { headers: [key, ['referer', 'https://news.example/the.onion']] })).status, 502);
});

t.test('an unavailable key store is a 503 with retry-after, never a 401', async (t) => {
  const keyStore: KeyStore = {
    find: () => Promise.reject(new KeyStoreUnavailable('connection refused by 10.0.0.9:6379')),
    unavailableReason: () => 'connection refused',
    close: () => Promise.resolve(),
  };
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { keyStore, upstreamUrl: upstream.url });
  const response = await ask(gateway, { headers: [key] });
  t.match(
    { status: response.status, body: response.body, retry: response.header('retry-after') },
    { status: 503, body: envelope('Service temporarily unavailable'), retry: '1' },
  );
  t.equal((await ask(gateway, { headers: [] })).status, 401, 'requests that need no store are decided without it');
  const ready = await fetch(`http://127.0.0.1:${gateway.management}/readyz`);
  t.equal(ready.status, 503);
  t.match(await ready.json(), { problems: ['key store: connection refused'] });

  for (const records of [{}, { ...recordsOf(liveKey), 'mg:merchant:m_1': { name: 'no record' } }]) {
    const emptied = await startTestGateway(t, { records });
    t.equal((await ask(emptied, { headers: [key] })).status, 503, 'an emptied or malformed store decides nothing');
  }
  t.same(upstream.seen, []);
});

t.test('an unexpected failure is a 500 in the envelope, and its message stays internal', async (t) => {
  const keyStore: KeyStore = {
    find: () => Promise.reject(new TypeError('secret of the house')),
    unavailableReason: () => null,
    close: () => Promise.resolve(),
  };
  const gateway = await startTestGateway(t, { keyStore });
  const response = await ask(gateway, { headers: [key] });
  t.match({ status: response.status, body: response.body }, { status: 500, body: envelope('Internal error') });
  t.match(gateway.internalErrors, [{ message: 'secret of the house' }]);
});

t.test('a connection serves several requests, also after a refusal with a small body', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const keepAlive = (what: Parameters<typeof requestBytes>[0]) =>
    requestBytes(what).replace('Connection: close\r\n', '');
  const socket = connect(gateway.https, gateway.ca);
  let received = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => (received += chunk));
  const asks = [
    { headers: [] },
    { method: 'POST', path: '/v1/payouts', body: '{"amount":1}', headers: [] },
    { headers: [key] },
    { method: 'POST', path: '/v1/payouts', body: '{"amount":1}', headers: [key] },
  ];
  for (const [index, what] of asks.entries()) {
    socket.write(keepAlive(what));
    while (statuses(received).length <= index || !received.endsWith('}')) await once(socket, 'data');
  }
  t.same(statuses(received), [401, 401, 200, 200]);
  socket.destroy();
  t.equal(upstream.seen.length, 2);
});

t.test('garbage after a pipelined request never replaces the response to that request', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  upstream.respond = (_request, response) => {
    setTimeout(() => response.writeHead(201, { 'content-length': '4' }).end('made'), 30);
  };
  const request = requestBytes({ method: 'POST', path: '/v1/payouts', body: '{}', headers: [key] });
  const received = await exchangeBytes(
    connect(gateway.https, gateway.ca),
    `${request.replace('Connection: close\r\n', '')}GARBAGE\r\n\r\n`,
  );
  t.same(statuses(received), [201], 'the client gets the response to its payout, and no other');
  t.match(received, /made$/);
});

t.test('garbage after a request closes its connection, also when the response has started', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const refused = requestBytes({ headers: [] }).replace('Connection: close\r\n', '');
  // Resolves when the gateway has closed the connection.
  const received = await exchangeBytes(connect(gateway.https, gateway.ca), `${refused}GARBAGE\r\n\r\n`);
  t.same(statuses(received), [401]);
  t.match(received, /\}$/, 'the response is complete');
});

t.test('a malformed chunk fails only its own request, with one response', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const received = await exchangeBytes(
    connect(gateway.https, gateway.ca),
    `POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${liveKey}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nZZ\r\n`,
  );
  t.same(statuses(received), [400]);
  t.equal(parseResponse(received).body, envelope('Malformed HTTP request'));
  t.same(upstream.seen, [], 'an incomplete payout is not forwarded');
});

t.test('a client that is too slow gets 408, in the headers and in the body', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { limits: { headersTimeoutSeconds: 3, requestTimeoutSeconds: 3 } },
  });
  const head = `POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${liveKey}\r\n`;
  const [headers, body] = await Promise.all([
    exchangeBytes(connect(gateway.https, gateway.ca), head),
    exchangeBytes(connect(gateway.https, gateway.ca), `${head}Content-Length: 10\r\n\r\n{`),
  ]);
  for (const received of [headers, body]) {
    const response = parseResponse(received);
    t.match({ status: response.status, body: response.body }, { status: 408, body: envelope('Request timeout') });
  }
  t.same(upstream.seen, []);
});

t.test('a drain reports not ready, refuses new connections, and lets requests in flight finish', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { limits: { drainTimeoutSeconds: 60 } },
  });
  const arrived = new Promise<http.ServerResponse>((resolve) => {
    upstream.respond = (_request, response) => {
      resolve(response);
    };
  });
  const bytes = requestBytes({ method: 'POST', path: '/v1/payouts', body: '{}', headers: [key] });
  const inFlight = exchangeBytes(connect(gateway.https, gateway.ca), bytes.replace('Connection: close\r\n', ''));
  const idle = connect(gateway.https, gateway.ca);
  const idleClosed = new Promise((resolve) => idle.on('error', () => undefined).once('close', resolve));
  const response = await arrived;
  const drained = gateway.drain();
  const ready = await fetch(`http://127.0.0.1:${gateway.management}/readyz`);
  t.match(await ready.json(), { status: 'not ready', problems: ['draining'] });
  await idleClosed;
  await t.rejects(exchangeBytes(connect(gateway.https, gateway.ca), bytes), 'new connections are refused');
  response.end('made');
  const completed = parseResponse(await inFlight);
  t.strictSame({ status: completed.status, body: completed.body }, { status: 200, body: 'made' });
  t.equal(completed.header('connection'), 'close', 'the connection closes after its response');
  await drained;
  t.equal(gateway.lines.length, 1);
});

const cutOff = {
  event: {
    code: 'client_closed',
    reason: /^the gateway shut down and closed the connection: .+ limits\.drainTimeoutSeconds$/,
  },
  http: { response: { status_code: 499 } },
};

t.test('a drain ends after its timeout, and the log does not blame the client', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const arrived = new Promise<void>((resolve) => {
    let count = 0;
    upstream.respond = () => {
      count += 1;
      if (count === 2) resolve();
    };
  });
  const ask = (): Promise<string> =>
    exchangeBytes(connect(gateway.https, gateway.ca), requestBytes({ headers: [key] })).catch(() => '');
  const stuck = [ask(), ask()];
  await arrived;
  await gateway.drain();
  t.same(await Promise.all(stuck), ['', ''], 'requests still in flight at the timeout are cut off');
  t.match(gateway.lines, [cutOff, cutOff]);
});

t.test('the management listener serves health and metrics, and the API listeners serve neither', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const management = `http://127.0.0.1:${gateway.management}`;
  await ask(gateway, { headers: [key] });
  await ask(gateway, { headers: [] });
  await ask(gateway, { path: '/chosen-by-a-caller', headers: [key] });
  const text = await (await fetch(`${management}/metrics`)).text();
  t.match(text, 'gateway_requests_total{code="accepted",status="200",route="/transactions",environment="live"} 1');
  t.match(text, 'gateway_requests_total{code="key_required",status="401",route="/transactions",environment="live"} 1');
  t.match(text, 'gateway_requests_total{code="not_found",status="404",route="none",environment="live"} 1');
  t.match(text, 'gateway_ready 1');
  t.notMatch(text, 'chosen-by-a-caller', 'a client cannot create a new series');
  t.equal((await fetch(`${management}/livez`)).status, 200);
  t.equal((await fetch(`${management}/readyz`)).status, 200);
  const json = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{' };
  for (const init of [{}, json, { method: 'POST', body: 'x'.repeat(2_000_000) }]) {
    const unknown = await fetch(`${management}/nowhere`, init);
    t.equal(unknown.status, 404);
    t.equal(await unknown.text(), envelope('Not found'));
  }
  for (const bytes of ['GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n', 'garbage\r\n\r\n']) {
    const received = await exchangeBytes(connect(gateway.management, null), bytes, (text) => text.endsWith('}'));
    t.equal(parseResponse(received).body, envelope('Malformed HTTP request'), 'its errors use the envelope too');
  }
  for (const path of ['/livez', '/readyz', '/metrics']) {
    t.equal((await ask(gateway, { path, headers: [] })).status, 401, 'without a key every API path is 401');
    t.equal((await ask(gateway, { path, headers: [key] })).status, 404);
  }
});

t.test(
  'a gateway is not ready until it is warm, and its warm-up requests appear in no log and no metric',
  async (t) => {
    const upstream = await startUpstream(t);
    const start = async () => {
      let reportWarm: (end: readonly [requests: number, failure: unknown]) => void = () => undefined;
      const warm = new Promise<readonly [requests: number, failure: unknown]>((resolve) => (reportWarm = resolve));
      const gateway = await startTestGateway(t, {
        upstreamUrl: upstream.url,
        config: { throttle: { badKeys: 1 }, rateLimit: { requestsPerSecond: 1, burst: 1 } },
        onWarm: (requests, failure) => {
          reportWarm([requests, failure]);
        },
      });
      const [requests, failure] = await warm;
      return { gateway, requests, failure };
    };
    let started = await start();
    // If the process pauses for a second or more, the warm-up ends early, or one of its requests times out. Then the
    // test starts another gateway.
    const wasPaused = (): boolean => started.requests <= 8 || String(started.failure).includes('status 504');
    for (let attempt = 0; attempt < 5 && wasPaused(); attempt += 1) started = await start();
    const { gateway: warmGateway, requests, failure } = started;
    const { lines, internalErrors, ...gateway } = warmGateway;
    t.equal(failure, null);
    t.ok(requests > 8, 'requests of every kind, on a slow machine too');
    const management = `http://127.0.0.1:${gateway.management}`;
    t.equal((await fetch(`${management}/readyz`)).status, 200);
    const text = await (await fetch(`${management}/metrics`)).text();
    t.notMatch(text, /gateway_requests_total\{|gateway_(?:connections_refused_total|\w+_count)\{.*\} [1-9]/);
    t.match(text, /gateway_decision_duration_seconds_count 0\n[^]*gateway_throttled_sources 0\n/);
    t.same([lines, internalErrors, upstream.seen], [[], [], []]);
    t.equal((await ask(gateway, { headers: [key] })).status, 200, 'the warm-up uses no quota');

    const ended = await new Promise((resolve) => {
      const onWarm = (_requests: number, failure: unknown): void => {
        resolve(failure);
      };
      void startTestGateway(t, { config: { limits: { bodyBytes: 0 } }, onWarm });
    });
    t.equal(ended, null, 'the warm-up works with a body limit of 0');

    let stoppedAfter = Infinity;
    const stopped = await startTestGateway(t, { onWarm: (made) => (stoppedAfter = made) });
    await stopped.drain();
    t.equal(stoppedAfter, 0, 'a drain ends the warm-up');

    const fine = { unavailableReason: () => null, problem: () => null, now: () => 0 };
    const readiness = new Readiness({ keyStore: fine, torExits: fine, accessLog: fine, clock: fine }, 'refuse');
    readiness.warmUp = { over: false };
    t.same(readiness.problems(), ['warming up']);
  },
);

t.test('failed handshakes and silent or idle connections write no line', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { limits: { headersTimeoutSeconds: 3 } },
  });
  const gone = async (socket: ReturnType<typeof connect>, act: () => void): Promise<void> => {
    socket.on('error', () => undefined);
    const closed = new Promise((resolve) => socket.once('close', resolve));
    act();
    await closed;
  };
  const silent = connect(gateway.https, null);
  await once(silent, 'connect');
  await gone(silent, () => silent.destroy());
  const waiting = connect(gateway.https, gateway.ca);
  waiting.resume();
  await gone(waiting, () => undefined);
  const plain = connect(gateway.https, null);
  await gone(plain, () => plain.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'));
  const shaken = connect(gateway.https, gateway.ca);
  await once(shaken, 'secureConnect');
  await gone(shaken, () => shaken.destroy());
  const stranger = connect(gateway.https, '');
  await gone(stranger, () => undefined);
  const idle = connect(gateway.https, gateway.ca);
  idle.write(requestBytes({ headers: [] }).replace('Connection: close\r\n', ''));
  await once(idle, 'data');
  await gone(idle, () => idle.destroy());
  await gateway.drain();
  t.equal(gateway.lines.length, 1, 'the only request');
});

t.test('a small body that never arrives after a refusal causes no second response and no second line', async (t) => {
  const gateway = await startTestGateway(t, {
    config: { limits: { headersTimeoutSeconds: 1, requestTimeoutSeconds: 1 } },
  });
  const received = await exchangeBytes(
    connect(gateway.https, gateway.ca),
    'POST /v1/payouts HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc',
  );
  t.same(statuses(received), [401]);
  t.equal(gateway.lines.length, 1);
});

t.test('a client that leaves during an upload is client_closed, not an upstream failure', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const socket = connect(gateway.https, gateway.ca);
  socket.write(
    `POST /v1/payouts HTTP/1.1\r\nHost: a\r\nx-api-key: ${liveKey}\r\nContent-Length: 99999\r\n\r\n${'x'.repeat(70_000)}`,
  );
  while (upstream.sockets.size === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  socket.end();
  while (gateway.lines.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  t.match(gateway.lines, [{ event: { code: 'client_closed' }, http: { response: { status_code: 499 } } }]);
});

t.test('CONNECT is judged like any other request: no tunnel, and 401 without a key', async (t) => {
  const gateway = await startTestGateway(t);
  const send = async (headers: string) =>
    parseResponse(
      await exchangeBytes(
        connect(gateway.https, gateway.ca),
        `CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n${headers}\r\n`,
      ),
    );
  t.match(await send(''), { status: 401, body: envelope('API Key is required') });
  t.match(await send(`x-api-key: ${liveKey}\r\n`), { status: 400, body: envelope('Invalid request path') });
  t.equal(gateway.lines.length, 2);
});

t.test('Upgrade is served as a normal request, and the connection closes after its response', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const bytes = requestBytes({ headers: [key, ['upgrade', 'websocket']] });
  const received = await exchangeBytes(
    connect(gateway.https, gateway.ca),
    bytes.replace('Connection: close', 'Connection: Upgrade') + bytes,
  );
  t.same(statuses(received), [200]);
  t.equal(parseResponse(received).header('connection'), 'close');
});
