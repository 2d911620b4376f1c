import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import t from 'tap';
import { freePort } from '../adapters/redis-server.js';
import {
  ask,
  connect,
  exchangeBytes,
  liveKey,
  parseResponse,
  recordsOf,
  requestBytes,
  startBareUpstream,
  startTestGateway,
  startUpstream,
  type Teardown,
} from '../edge/harness.js';

// Headers with which a client gives a gateway, or the service behind it, a false identity, address or protocol.
const key = ['x-api-key', liveKey] as const;
const forged = '203.0.113.7';

/** Headers that services may take for the gateway's. Some gateway has accepted each of them from a client. */
const identityHeaders: readonly (readonly [string, string])[] = [
  // oauth2-proxy CVE-2025-64484: a service behind WSGI or PHP reads `_` as `-`, so an alias passed the filter.
  ...['X_Forwarded_User', 'X-Forwarded_User', 'x_forwarded-email', 'X_Forwarded_Groups'].map(
    (name): [string, string] => [name, 'root'],
  ),
  // Traefik CVE-2026-39858: aliases of X-Forwarded-* were not removed with them.
  ...['X_Forwarded_For', 'X_FORWARDED_PROTO', 'X_Real_Ip', 'X-Real_IP', 'X_Forwarded_Tls_Client_Cert'].map(
    (name): [string, string] => [name, forged],
  ),
  ['X_Merchant_Id', 'm_other'],
  ['X-MERCHANT_ID', 'm_other'],
  ['x_merchant-key_id', 'key_other'],
  ['X-Merchant-Environment', 'test'],
  ['x_gateway_assertion', 'eyJhbGciOiJub25lIn0.e30.'],
  ['X-Gateway-Assertion', 'eyJhbGciOiJub25lIn0.e30.'],
  ['X_Request_Id', 'chosen'],
  ['X_Api_Key', liveKey],
  ['Forwarded', `for=${forged};proto=https`],
  ['X-Forwarded-Server', 'evil.example'],
  ['X-Forwarded-Prefix', '/evil'],
  ['X-Forwarded-Port', '1'],
  // oauth2-proxy CVE-2026-40575: access was decided by the path in this header.
  ['X-Forwarded-Uri', '/v1/transactions'],
];

t.test('a client cannot forge x-merchant-* or x-gateway-* headers under any spelling', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  for (const header of identityHeaders) {
    upstream.seen.length = 0;
    t.equal((await ask(gateway, { headers: [key, header] })).status, 200, header[0]);
    const forwarded = upstream.seen[0]?.rawHeaders ?? [];
    t.notOk(forwarded.includes(header[1]) || forwarded.includes(header[0]), `${header[0]} does not reach the service`);
    t.match(upstream.seen[0]?.headers, { 'x-merchant-id': 'm_1', 'x-forwarded-for': '127.0.0.1' });
  }
});

/** Characters of a header name besides letters and digits (RFC 9110, 5.6.2). CGI and similar interfaces read each as `_`. */
const separator = fc.constantFrom(...Array.from("!#$%&'*+-.^_`|~"));

/** Reserved names: one or two of each group, and at least one with each reserved prefix. */
const reserved = [
  ...['x-api-key', 'x-merchant-id', 'x-merchant-key-id', 'x-merchant-any', 'x-gateway-assertion', 'x-gateway-x'],
  ...['x-request-id', 'x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'x-forwarded-user', 'forwarded'],
  ...['x-forwarded', 'forwarded-for', 'x-real-ip', 'x-client-ip', 'client-ip', 'true-client-ip', 'cf-connecting-ip'],
  ...['cf-connecting-ipv6', 'fastly-client-ip', 'x-cluster-client-ip', 'x-envoy-external-address', 'x-remote-addr'],
  ...['remote-user', 'x-remote-user', 'wl-proxy-client-ip', 'x-azure-clientip', 'x-auth-request-email', 'proxy'],
  ...['x-http-method', 'x-http-method-override', 'x-method-override', 'x-original-url', 'x-original-method'],
  ...['x-rewrite-url', 'x-override-url', 'x-sendfile-type', 'x-accel-mapping', 'traceparent', 'tracestate'],
  ...['keep-alive', 'proxy-connection', 'proxy-authorization', 'http2-settings', 'te', 'trailer', 'upgrade'],
];
/** These headers frame the request, so under their exact names they cannot have an arbitrary value. */
const framing = ['content-length', 'transfer-encoding'];

/** The name with other separators, and with letters in any case. */
function spellingsOf(name: string): fc.Arbitrary<string> {
  const letters = Array.from(name, (letter) =>
    letter === '-' ? separator : fc.constantFrom(letter, letter.toUpperCase()),
  );
  return fc.tuple(...letters).map((chosen) => chosen.join(''));
}

t.test('every spelling of a reserved header is removed; other headers are forwarded unchanged', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const forgedName = fc.oneof(
    fc.constantFrom(...reserved, 'host', 'connection').chain(spellingsOf),
    fc
      .constantFrom(...framing)
      .chain(spellingsOf)
      .filter((name) => !framing.includes(name.toLowerCase())),
  );
  // No reserved name consists of these letters, whatever the separators are.
  const otherName = fc
    .array(fc.oneof(fc.constantFrom(...Array.from('bdjqvzBJQZ019')), separator), { minLength: 1, maxLength: 24 })
    .map((letters) => letters.join(''));
  const kept = fc.oneof(
    otherName,
    fc.constantFrom('Content-Type', 'Idempotency-Key', 'Authorization', 'Accept', 'x_custom', 'idempotency_key', 'via'),
    fc.constantFrom('x-merchant', 'x-forward', 'x-api-keys', 'my-x-api-key', 'xmerchant-id', 'x.http', 'x-real-ips'),
  );
  // Under these exact names the gateway itself acts on the headers, so the test does not forge them.
  const own = ['x-api-key', 'host', 'connection', 'upgrade', 'expect'];
  await fc.assert(
    fc.asyncProperty(
      fc.array(
        forgedName.filter((name) => !own.includes(name.toLowerCase())),
        { maxLength: 20 },
      ),
      fc.array(kept, { maxLength: 20 }),
      async (forgedNames, keptNames) => {
        upstream.seen.length = 0;
        const headers = [
          ...forgedNames.map((name): [string, string] => [name, 'forged-value']),
          ...keptNames.map((name, index): [string, string] => [name, `kept-${index}`]),
        ];
        if ((await ask(gateway, { headers: [key, ...headers] })).status !== 200) return false;
        const { rawHeaders = [] } = upstream.seen[0] ?? {};
        const at = keptNames.length === 0 ? rawHeaders.length : rawHeaders.indexOf('kept-0') - 1;
        const unchanged = isDeepStrictEqual(rawHeaders.slice(at), headers.slice(forgedNames.length).flat());
        return unchanged && !rawHeaders.includes('forged-value');
      },
    ),
    { numRuns: 150 },
  );
});

t.test('trailers of a chunked request are never forwarded', async (t) => {
  let received = '';
  const url = await startBareUpstream(t, (socket) => {
    socket.setEncoding('latin1').on('data', (chunk) => {
      received += String(chunk);
      if (/\}$|\r\n0\r\n\r\n$/.test(received)) socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');
    });
  });
  const gateway = await startTestGateway(t, { upstreamUrl: url });
  const head = `POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${liveKey}\r\nConnection: close\r\n`;
  const trailers = ['x-merchant-id', 'X.Merchant.Id', 'x-kept', 'content_length'].map(
    (name) => `${name}: trailing\r\n`,
  );
  // The short body is buffered and forwarded in one piece; the long one is forwarded in chunks.
  const long = 'x'.repeat(70_000);
  for (const [body, end] of [
    ['{}', /content-length: 2\r\n[^]*\r\n\r\n\{\}$/],
    [long, /transfer-encoding: chunked\r\n[^]*x\r\n0\r\n\r\n$/],
  ] as const) {
    received = '';
    const chunk = `${body.length.toString(16)}\r\n${body}\r\n`;
    const framed = `TE: trailers\r\nTrailer: x-merchant-id\r\nTransfer-Encoding: chunked\r\n\r\n${chunk}0\r\n`;
    const bytes = `${head}${framed}${trailers.join('')}\r\n`;
    t.equal(parseResponse(await exchangeBytes(connect(gateway.https, gateway.ca), bytes)).status, 200);
    t.match(received, end);
    t.notMatch(received, /trailing|trailer/i);
  }
});

t.test('a header listed in Connection is not forwarded under any spelling; other headers are', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  for (const named of ['X-Hop-Only', 'x.hop_only', 'content.length, X_Merchant_Id, x!forwarded!for, x-hop-only']) {
    upstream.seen.length = 0;
    const headers: [string, string][] = [
      ['Connection', named],
      ['X-Hop-Only', 'of one hop'],
      ['x_hop_only', 'of one hop'],
      ['X-Kept', 'kept'],
    ];
    const response = await ask(gateway, {
      method: 'POST',
      path: '/v1/payouts',
      body: '{}',
      headers: [key, ...headers],
    });
    t.equal(response.status, 200, named);
    t.notOk(upstream.seen[0]?.rawHeaders.includes('of one hop'), named);
    const kept = { 'x-merchant-id': 'm_1', 'x-forwarded-for': '127.0.0.1', 'content-length': '2', 'x-kept': 'kept' };
    t.match(upstream.seen[0]?.headers, kept);
    t.equal(upstream.seen[0]?.body.toString(), '{}');
  }
});

// reply-from CVE-2026-33805, Traefik CVE-2024-45410, Fabio CVE-2025-48865, Apache httpd CVE-2022-31813.
t.test('Connection cannot remove headers that the gateway adds', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const mine = ['x-merchant-id', 'x-merchant-key-id', 'x-merchant-environment', 'x-request-id'];
  const theirs = ['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host', 'host', 'content-length'];
  for (const name of [...mine, ...theirs, 'X-Merchant-ID', 'close, X-Forwarded-For']) {
    upstream.seen.length = 0;
    const headers = [key, ['Connection', name]] as const;
    const response = await ask(gateway, { method: 'POST', path: '/v1/payouts', body: '{}', headers });
    t.equal(response.status, 200, name);
    t.match(upstream.seen[0]?.headers, {
      'x-merchant-id': 'm_1',
      'x-merchant-key-id': 'key_1',
      'x-merchant-environment': 'live',
      'x-request-id': response.header('x-request-id'),
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-proto': 'https',
      'x-forwarded-host': 'localhost',
      'content-length': '2',
    });
    t.equal(upstream.seen[0]?.body.toString(), '{}');
  }
});

t.test('the client address comes only from X-Forwarded-For, and only from a trusted proxy', async (t) => {
  // Kong #1697, Tyk #624, APISIX CVE-2022-24112 (X-Real-IP passed the check of a loopback address), fastify #5865.
  const names = ['X-Real-IP', 'X-Client-IP', 'True-Client-IP', 'CF-Connecting-IP', 'X-Cluster-Client-IP', 'Client-IP'];
  const more = ['X-Originating-IP', 'X-Remote-IP', 'X-Remote-Addr', 'X-ProxyUser-Ip', 'Via', 'X_Forwarded_For'];
  const upstream = await startUpstream(t);
  const records = recordsOf(liveKey, { merchant: { ipAllowlist: [forged] } });
  for (const trustedProxies of [[], ['127.0.0.1']]) {
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, records, config: { trustedProxies } });
    for (const name of [...names, ...more]) {
      const response = await ask(gateway, { headers: [key, [name, forged]] });
      t.match(response.body, 'IP address not allowed', `${name} from ${trustedProxies.join() || 'anybody'}`);
    }
    const forwarded = await ask(gateway, { headers: [key, ['Forwarded', `for=${forged}`]] });
    t.match(forwarded.body, 'IP address not allowed');
    const xForwardedFor = await ask(gateway, { headers: [key, ['X-Forwarded-For', forged]] });
    t.equal(xForwardedFor.status, trustedProxies.length === 0 ? 401 : 200);
    const leftMost = await ask(gateway, { headers: [key, ['X-Forwarded-For', `${forged}, 198.51.100.1`]] });
    t.match(leftMost.body, 'IP address not allowed', 'the client wrote the left-most entry');
  }
  t.equal(upstream.seen.length, 1);
});

t.test('the protocol comes only from X-Forwarded-Proto, and only from a trusted proxy', async (t) => {
  // fastify CVE-2026-3635 and CVE-2026-16732: the header of an untrusted peer was accepted, or of one hop too many.
  const upstream = await startUpstream(t);
  const names = ['X-Forwarded-Protocol', 'X-Forwarded-Ssl', 'X-Url-Scheme', 'Front-End-Https', 'X_Forwarded_Proto'];
  for (const trustedProxies of [[], ['127.0.0.1']]) {
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { trustedProxies } });
    const over = async (header: readonly [string, string]): Promise<number> => {
      const bytes = requestBytes({ headers: [key, header] });
      return parseResponse(await exchangeBytes(connect(gateway.http, null), bytes)).status;
    };
    for (const name of names) for (const value of ['https', 'on']) t.equal(await over([name, value]), 401, name);
    t.equal(await over(['Forwarded', 'proto=https']), 401);
    t.equal(await over(['X-Forwarded-Proto', 'https']), trustedProxies.length === 0 ? 401 : 200);
  }
});

t.test('two thousand headers do not hide the X-Forwarded-For that a proxy appends', async (t) => {
  // By default Node drops headers after about the thousandth, and with them the X-Forwarded-For of the trusted proxy.
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    records: recordsOf(liveKey, { merchant: { ipAllowlist: [forged] } }),
    config: { trustedProxies: ['127.0.0.1'], limits: { headerBytes: 65_536 } },
  });
  const padding = Array.from({ length: 2500 }, (): [string, string] => ['a', 'b']);
  const allowed = await ask(gateway, { headers: [key, ...padding, ['X-Forwarded-For', forged]] });
  t.equal(allowed.status, 200);
  const refused = await ask(gateway, { headers: [key, ...padding, ['X-Forwarded-For', '198.51.100.1']] });
  t.match(refused.body, 'IP address not allowed');
  const twoKeys = await ask(gateway, { headers: [key, ...padding, ['X-Forwarded-For', forged], key] });
  t.match(twoKeys.body, 'Invalid API key format');
});

t.test('no spelling of Content-Type changes the decision or the body (reply-from CVE-2023-51701)', async (t) => {
  // Also fastify CVE-2022-39288, CVE-2025-32442, CVE-2026-25223 and CVE-2026-33806: two parts of the server read the
  // content type differently, or it crashed the server.
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const types = ['application/json ; charset=utf-8', 'ApPlIcAtIoN/JsOn', 'application/json\t', ';', 'a/b; =', '/', ','];
  for (const type of [...types, 'multipart/form-data', 'application/x-www-form-urlencoded', 'text/plain;\u00a0x']) {
    upstream.seen.length = 0;
    const headers = [key, ['Content-Type', type]] as const;
    const response = await ask(gateway, { method: 'POST', path: '/v1/payouts', body: '{"a":1,"a":2}', headers });
    t.equal(response.status, 200, JSON.stringify(type));
    t.equal(upstream.seen[0]?.body.toString(), '{"a":1,"a":2}');
  }
  t.same(gateway.internalErrors, []);
});

// CGI makes a variable of each header name, with `_` for every character except letters and digits. Headers of
// different names can thus become one variable, and it is chance which of them a program reads. The service of this
// test is a CGI script of lighttpd.

const withoutLighttpd =
  spawnSync('lighttpd', ['-v']).status === 0
    ? false
    : 'lighttpd is not installed: NOTHING ABOUT FOLDED HEADER NAMES IS TESTED ON A REAL CGI';

/** All characters of a header name besides letters and digits (RFC 9110, 5.6.2). */
const separators = Array.from("!#$%&'*+-.^_`|~");

/** Prints the variables as the server set them, with duplicates. A shell's own variables would have only one of each name. */
const script = String.raw`printf 'Content-Type: text/plain\r\n\r\n'; tr '\0' '\n' < /proc/$$/environ`;

async function startLighttpd(t: Teardown): Promise<string> {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-lighttpd-'));
  const port = await freePort();
  const documents = path.join(directory, 'documents');
  await mkdir(documents);
  await writeFile(path.join(documents, 'transactions'), script);
  const file = path.join(directory, 'lighttpd.conf');
  const lines = [
    ...[`server.document-root = "${documents}"`, 'server.bind = "127.0.0.1"', `server.port = ${port}`],
    ...['server.modules = ("mod_cgi")', 'cgi.assign = ("/transactions" => "/bin/sh")'],
  ];
  await writeFile(file, `${lines.join('\n')}\n`);
  const server = spawn('lighttpd', ['-D', '-f', file], { stdio: ['ignore', 'ignore', 'pipe'] });
  t.teardown(async () => {
    const ended = once(server, 'exit');
    if (server.exitCode === null && server.kill()) await ended;
    await rm(directory, { recursive: true, force: true });
  });
  await new Promise<void>((resolve, reject) => {
    let output = '';
    server.once('exit', () => {
      reject(new Error(`lighttpd ended: ${output}`));
    });
    server.stderr.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      if (output.includes('server started')) resolve();
    });
  });
  return `http://127.0.0.1:${port}`;
}

t.test(
  'header underscores and other separators: a CGI service gets each gateway variable once, from the gateway',
  { skip: withoutLighttpd },
  async (t) => {
    const gateway = await startTestGateway(t, { upstreamUrl: await startLighttpd(t) });
    const variablesOf = async (headers: readonly (readonly [string, string])[]): Promise<string[]> => {
      const response = await ask(gateway, { headers: [['x-api-key', liveKey], ...headers] });
      t.equal(response.status, 200);
      return response.body.split('\n').filter((line) => line.startsWith('HTTP_'));
    };
    for (const separator of separators) {
      const spelt = (name: string): string => name.replaceAll('-', separator);
      const variables = await variablesOf([
        [spelt('x-merchant-id'), 'm_2'],
        [spelt('X-Merchant-Key-Id'), 'key_2'],
        [spelt('x-merchant-environment'), 'test'],
        [spelt('x-gateway-assertion'), 'forged'],
        [spelt('x-forwarded-for'), '203.0.113.7'],
        [spelt('x-request-id'), 'forged'],
        [spelt('x-custom-header'), 'kept'],
        ['Connection', ['x-merchant-id', 'x-forwarded-for', 'x-request-id'].map(spelt).join(', ')],
      ]);
      const values = (name: string): string[] =>
        variables.filter((line) => line.startsWith(`${name}=`)).map((line) => line.slice(name.length + 1));
      t.same(values('HTTP_X_MERCHANT_ID'), ['m_1'], separator);
      t.same(values('HTTP_X_MERCHANT_KEY_ID'), ['key_1'], separator);
      t.same(values('HTTP_X_MERCHANT_ENVIRONMENT'), ['live'], separator);
      t.same(values('HTTP_X_GATEWAY_ASSERTION'), [], separator);
      t.same(values('HTTP_X_FORWARDED_FOR'), ['127.0.0.1'], separator);
      t.match(values('HTTP_X_REQUEST_ID'), [/^[0-9A-Z]{26}$/], separator);
      t.same(values('HTTP_X_CUSTOM_HEADER'), ['kept'], separator);
    }
  },
);

// Node 20 reads a thousand headers of a request, and drops the others silently. Regression: the gateway's own headers
// came last. A client that sent very many short headers could remove them: a service received no merchant, address or
// signature.
t.test('no number of client headers displaces the identity headers of the gateway', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    identity: { assertionFor: () => Promise.resolve('signed'), publicKeys: {} },
  });
  const many = Array.from({ length: 1_100 }, () => ['a', ''] as const);
  const trace = ['traceparent', `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`] as const;
  const headers = [...many, ['x-api-key', liveKey] as const, trace];
  const response = await ask(gateway, { method: 'POST', path: '/v1/payouts', headers, body: '{}' });
  t.equal(response.status, 200);
  const names = upstream.seen[0]?.rawHeaders.filter((_, index) => index % 2 === 0) ?? [];
  t.equal(names.filter((name) => name === 'a').length, many.length);
  const inFront = names.slice(0, names.indexOf('a')).sort();
  t.strictSame(inFront, [
    ...[
      'connection',
      'content-length',
      'host',
      'traceparent',
      'x-forwarded-for',
      'x-forwarded-host',
      'x-forwarded-proto',
    ],
    ...['x-gateway-assertion', 'x-merchant-environment', 'x-merchant-id', 'x-merchant-key-id', 'x-request-id'],
  ]);
});
