import { writeFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import tls from 'node:tls';
import { inspect } from 'node:util';
import t, { type Test } from 'tap';
import { run } from '../../src/cli/run.js';
import { generateApiKey } from '../../src/gateway/api-key.js';
import type { Span } from '../../src/gateway/ports.js';
import { createRestApp } from '../../src/rest/rest-app.js';
import { OperatorAttempts } from '../../src/services/operators/operator-attempts.js';
import { createLogger } from '../../src/telemetry/logger.js';
import Type from '../../src/typebox/typebox.js';
import { makeCertificate } from '../edge/certificates.js';
import {
  ask,
  connect,
  exchangeBytes,
  liveKey,
  parseResponse,
  recordsOf,
  requestBytes,
  startTestGateway,
} from '../edge/harness.js';
import { ManualTime } from '../registry/manual-time.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { operatorsOf } from '../services/operators-fixture.js';
import { addWallet, bankPayout, merchantA, servicesFixture } from '../services/services-fixture.js';
import { until } from '../telemetry/open-log.js';
import { disguises, key, piecesOf, secret, withoutIdsAndTimes, withoutTraceId } from './disguised-keys.js';

/** A text as a header value. Clients send it as UTF-8, but Node treats the bytes of headers as latin1. */
const inHeader = (text: string): string => Buffer.from(text).toString('latin1');
const inPath = (text: string): string => text.replaceAll(/[^!-~]|["'\\]/g, encodeURIComponent);

/** The parts of a request that the access log shows. */
const places: Readonly<Record<string, (text: string) => Parameters<typeof ask>[1]>> = {
  path: (text) => ({ path: `/v1/transactions/${inPath(text)}` }),
  'target in absolute form': (text) => ({ path: `http://u:${inPath(text)}@a/v1` }),
  'path of no route': (text) => ({ path: `/${inPath(text)}/more` }),
  'user agent': (text) => ({ headers: [['user-agent', inHeader(`curl/8 (${text}) end`)]] }),
  'user agent alone': (text) => ({ headers: [['user-agent', inHeader(text)]] }),
  origin: (text) => ({ headers: [['origin', inHeader(`https://${text}.example`)]] }),
  'origin alone': (text) => ({ headers: [['origin', inHeader(text)]] }),
  referer: (text) => ({ headers: [['referer', inHeader(`https://shop.example@${text}/${text}`)]] }),
  host: (text) => ({ host: inHeader(text) }),
  'request id': (text) => ({ headers: [['x-request-id', inHeader(text)]] }),
  'short request id': (text) => ({ headers: [['x-request-id', inHeader(text).slice(0, 64).trimEnd()]] }),
  'forwarded address': (text) => ({ headers: [['x-forwarded-for', inHeader(text)]] }),
  'forwarded protocol': (text) => ({ headers: [['x-forwarded-proto', inHeader(text)]] }),
  'trace parent': (text) => ({ headers: [['traceparent', inHeader(text)]] }),
  'transfer encoding': (text) => ({ headers: [['transfer-encoding', inHeader(text)]] }),
  'content length': (text) => ({ headers: [['content-length', inHeader(text)]] }),
  'header name': (text) => ({ headers: [[inHeader(text), '1']] }),
  'second key': (text) => ({ headers: [['x-api-key', inHeader(text)]] }),
};

t.test('key leak: no part of a split or encoded key is in an access log line', async (t) => {
  const gateway = await startTestGateway(t, {
    records: recordsOf(key, { merchant: { originAllowlist: ['a.example'] } }),
    config: { trustedProxies: ['127.0.0.1'] },
  });
  for (const [how, disguise] of Object.entries(disguises)) {
    const pieces = piecesOf(disguise);
    for (const [where, put] of Object.entries(places)) {
      gateway.lines.length = 0;
      const { headers = [], ...what } = put(disguise(key));
      const response = await ask(gateway, { ...what, headers: [['x-api-key', key], ...headers] });
      await until(() => gateway.lines.length === 1);
      const { event, ...rest } = gateway.lines[0] ?? {};
      const text = JSON.stringify([rest, (event as { readonly reason?: string }).reason, response]);
      const { id: traceId = '' } = (rest.trace ?? {}) as { readonly id?: string };
      const line = withoutTraceId(withoutIdsAndTimes(text), traceId, disguise(key));
      const leaked = pieces.filter((piece) => line.toLowerCase().includes(piece));
      t.same(leaked.slice(0, 3), [], `${how}, in ${where}: ${line}`);
    }
  }
});

t.test('key leak: a long authority of the target does not keep the path out of the log', async (t) => {
  const gateway = await startTestGateway(t, { records: recordsOf(key) });
  await ask(gateway, { path: `http://${'u'.repeat(2_000)}@a/v1/transactions` });
  await until(() => gateway.lines.length === 1);
  t.match(gateway.lines[0], { url: { path: '/v1/transactions' } });
});

// Clients put keys in wrong places: in the path, the user agent, the request id of a proxy. Regression: the log kept
// them.
const inspected = { depth: 20, maxArrayLength: null, maxStringLength: null, breakLength: Infinity };

t.test('key leak: no five characters of a key are in a log line, response, metric, span or error', async (t) => {
  const spans: Span[] = [];
  const gateway = await startTestGateway(t, {
    records: recordsOf(key),
    config: { trustedProxies: ['127.0.0.1'] },
    logSecret: Buffer.from('a secret of this test'),
    traces: {
      sample: () => true,
      take: (span) => spans.push(span),
      stats: () => ({ exported: 0, dropped: 0 }),
      close: () => Promise.resolve(),
    },
  });
  const raw = async (bytes: string) => parseResponse(await exchangeBytes(connect(gateway.https, gateway.ca), bytes));
  const encoded = `svc%5Flive%5F${secret}`;
  const responses = [
    await ask(gateway, { headers: [['x-api-key', key]] }),
    await ask(gateway, { headers: [['x-api-key', `${key}x`]] }),
    await ask(gateway, {
      headers: [
        ['x-api-key', key],
        ['x-api-key', key],
      ],
    }),
    await ask(gateway, { path: `/v1/transactions/${key}`, headers: [['x-api-key', key]] }),
    await ask(gateway, { path: `/v1/transactions/${encoded}` }),
    await ask(gateway, { path: `/v1/transactions/${encoded.replaceAll('%', '%25')}` }),
    await ask(gateway, { path: `/v1/x/svc_live_/${encoded}` }),
    await ask(gateway, { path: `/v1/x/svc_live_Zm9/${secret}==` }),
    await ask(gateway, { headers: [['user-agent', `curl svc_live_a/b?c#d&${secret}`]] }),
    await ask(gateway, { path: `/v1/svc_live_${secret.replaceAll('g', '%67')}` }),
    await ask(gateway, { path: `/v1/transactions&x-api-key=${key}` }),
    await ask(gateway, { path: `/v1/transactions%3Fapi_key=${key}` }),
    await ask(gateway, { path: `/v1/transactions?api_key=${key}` }),
    await ask(gateway, { path: `http://u:${key}@a/v1/transactions` }),
    await ask(gateway, { method: 'POST', path: '/v1/payouts', body: key }),
    await ask(gateway, { headers: [['user-agent', `curl ${key}`]] }),
    await ask(gateway, { headers: [['referer', `https://shop.example/?key=${key}`]] }),
    await ask(gateway, { headers: [['x-request-id', key]] }),
    await ask(gateway, { headers: [['x-forwarded-for', key]] }),
    await ask(gateway, { host: key }),
    await ask(gateway, { headers: [['traceparent', key]] }),
    await ask(gateway, { headers: [['tracestate', `a=${key}`]] }),
    await ask(gateway, { headers: [['authorization', `Bearer ${key}`]] }),
    await ask(gateway, { headers: [['cookie', `key=${key}`]] }),
    await ask(gateway, { headers: [['origin', `https://${key}.example`]] }),
    await ask(gateway, { headers: [['x-forwarded-proto', key]] }),
    await ask(gateway, { headers: [['transfer-encoding', key]] }),
    await ask(gateway, { headers: [[key, 'a name']] }),
    await raw(requestBytes({ method: key })),
    await raw(`GET /${key} HTTP/9.9\r\nHost: localhost\r\n\r\n`),
    await raw(`GET / HTTP/1.1\r\nHost: localhost\r\n${key}\r\n\r\n`),
    parseResponse(await exchangeBytes(connect(gateway.http, null), requestBytes({ headers: [['x-api-key', key]] }))),
  ];
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  await until(() => gateway.lines.length >= responses.length);
  t.equal(gateway.lines.length, responses.length, 'each request has its log line');
  t.ok(spans.length > 20);
  const { lines, internalErrors } = gateway;
  const everything = withoutIdsAndTimes(
    inspect([lines, responses, metrics, spans, internalErrors], inspected),
  ).toLowerCase();
  for (let at = 0; at + 5 <= secret.length; at += 1) {
    const piece = secret.slice(at, at + 5).toLowerCase();
    if (everything.includes(piece)) t.fail(`${piece} is leaked`);
  }
  t.match(everything, 'svc_live_…', 'the output shows that there was a key');
});

t.test('key leak: a key in the subject of a client certificate is masked in the access log', async (t) => {
  const folder = t.testdir({});
  const authority = await makeCertificate({ names: ['authority.example'] });
  const file = (name: string, text: string): string => {
    writeFileSync(path.join(folder, name), text, { mode: 0o600 });
    return path.join(folder, name);
  };
  const server = await makeCertificate();
  const gateway = await startTestGateway(t, {
    config: {
      listen: {
        https: {
          ...{ certFile: file('server.crt', server.cert), keyFile: file('server.key', server.key) },
          ...{ clientCaFile: file('ca.crt', authority.cert), clientCertificates: 'require' },
        },
      },
    },
  });
  for (const [how, disguise] of Object.entries(disguises)) {
    gateway.lines.length = 0;
    const client = await makeCertificate({ commonName: `client ${disguise(key)}`, ca: authority });
    const socket = tls.connect({ port: gateway.https, rejectUnauthorized: false, cert: client.cert, key: client.key });
    t.match(await exchangeBytes(socket, requestBytes({})), 'Key is required');
    await until(() => gateway.lines.length === 1);
    const { subject } = (gateway.lines[0] as { tls: { client: { subject: string } } }).tls.client;
    t.match(subject, how === 'as it is' ? /^CN=client svc_live_…$/ : /^CN=client [^"]{0,12}…$/, how);
    const leaked = piecesOf(disguise).filter((piece) => subject.toLowerCase().includes(piece));
    t.same(leaked, [], `${how}: ${subject}`);
  }
});

t.test('key leak: no part of a split or encoded key is in the process log', (t) => {
  for (const [name, disguise] of Object.entries(disguises)) {
    const lines: string[] = [];
    const log = createLogger('info', { write: (line) => lines.push(line) });
    const text = `before ${disguise(key)} end`;
    log.info({ field: text, list: [{ deep: text }], [text]: 1 }, 'a field');
    log.error({ err: new Error(text, { cause: new Error(text) }) }, 'an error');
    log.warn(text);
    t.equal(lines.length, 3);
    const written = withoutIdsAndTimes(lines.join('')).toLowerCase();
    t.same(
      piecesOf(disguise).filter((piece) => written.includes(piece)),
      [],
      name,
    );
    for (const line of lines)
      t.match(JSON.parse(line), { level: /info|warn|error/, msg: /^/ }, 'the line is still JSON');
    t.match(lines.join(''), /"field":"before [^"]{0,12}…"/);
  }
  t.end();
});

t.test('key leak: no part of a split or encoded key is in the output of config check', async (t) => {
  const directory = t.testdir();
  for (const [name, disguise] of Object.entries(disguises)) {
    const text = disguise(key);
    if (/\p{C}/u.test(text)) continue; // a path cannot contain a control character
    const file = `${directory}/gateway.yaml`;
    writeFileSync(file, JSON.stringify({ accessLog: { destination: `/var/log/${text}.log` } }));
    for (const format of [[], ['--json']]) {
      let out = '';
      const io = { out: (printed: string) => (out += printed), err: (printed: string) => (out += printed) };
      t.equal(await run(['config', 'check', '--for', 'services', '--config', file, ...format], io), 0, name);
      const printed = out.toLowerCase();
      t.same(
        piecesOf(disguise).filter((piece) => printed.includes(piece)),
        [],
        `${name} ${format.join('')}`,
      );
      t.match(out, /\/var\/log\/[^"]{0,12}…/);
    }
  }
});

t.test('key leak: a password in the URL of the public keys is rejected and not echoed', async (t) => {
  const file = path.join(t.testdir(), 'gateway.yaml');
  for (const user of ['operator:hunter22', ':hunter22', 'hunter22']) {
    writeFileSync(file, JSON.stringify({ identity: { publicKeysUrl: `http://${user}@127.0.0.1:1/jwks.json` } }));
    let printed = '';
    const io = { out: (text: string) => (printed += text), err: (text: string) => (printed += text) };
    t.equal(await run(['config', 'check', '--config', file], io), 2, printed);
    t.match(printed, 'identity.publicKeysUrl: expected a URL without user and password');
    t.notMatch(printed, 'hunter22');
  }
});

/** Commands in which somebody may pass a key by mistake. */
const commandLines: readonly ((text: string) => readonly string[])[] = [
  (text) => [text],
  (text) => ['keys', text],
  (text) => ['keys', 'revoke', text, '--registry', 'http://127.0.0.1:1', '--token-file', 'none'],
  (text) => ['keys', 'list', text, 'another', '--json'],
  (text) => ['audit', 'verify', text],
  (text) => ['audit', 'search', '--code', text, 'none.log'],
  (text) => ['audit', 'prove', '--id', text, '--checkpoints', text, '--public-key', text, 'none.log'],
  (text) => ['config', 'check', '--config', text],
  (text) => [`--${text}`],
  (text) => ['instance-keys', 'confirm', text, '--registry', `http://${text}`],
];

t.test('key leak: no part of a split or encoded key is in an error of the command line', async (t) => {
  for (const [name, disguise] of Object.entries(disguises)) {
    for (const place of commandLines) {
      const args = place(disguise(key));
      let printed = '';
      const io = { out: (text: string) => (printed += text), err: (text: string) => (printed += text) };
      t.not(await run(args, io), 0, `${name}: ${args[0] === disguise(key) ? 'command' : args.slice(0, 2).join(' ')}`);
      const found = piecesOf(disguise).filter((piece) => printed.toLowerCase().includes(piece));
      t.same(found, [], `${name} ${args.length}: ${printed.slice(0, 200)}`);
    }
  }
});

t.test('masking a key leaves the rest of the error text intact', async (t) => {
  let err = '';
  const io = { out: () => undefined, err: (text: string) => (err += text) };
  await run([key], io);
  t.match(err, /^error: unknown command 'svc_live_…'/);
  err = '';
  await run([key.slice(0, -1)], io);
  t.match(
    err,
    /^error: unknown command 'svc_live_…\n/,
    'after an incomplete key, the text that follows it may be masked too',
  );
  err = '';
  const access = ['--registry', 'http://127.0.0.1:1', '--token-file', `${t.testdir({ token: 'x'.repeat(40) })}/token`];
  await run(['keys', 'revoke', key, ...access], io);
  t.match(err, 'Never pass a key or token as an argument');
});

// Regression: `keys create --label svc_live_…` stored a key in plain text, visible to every administrator and in every
// backup.
const generatedKey = generateApiKey('live');

t.test('key leak: a name or label that contains a key is rejected and not echoed', async (t) => {
  const { call, createKey, createMerchant, database } = await registryFixture(t, 'sqlite::memory:');
  const { id } = await createMerchant();
  const { keyId } = await createKey(id);
  const texts = [
    generatedKey,
    generatedKey.toUpperCase(),
    `old: ${generatedKey}`,
    generatedKey.replace('live', 'test'),
    'svc_live_',
  ];
  for (const text of texts) {
    const responses = [
      await call('POST', `/merchants/${id}/keys`, { body: { environment: 'live', label: text } }),
      await call('POST', '/merchants', { body: { name: text } }),
      await call('PATCH', `/merchants/${id}`, { body: { name: text } }),
      await call('POST', `/keys/${keyId}/revoke`, { headers: { 'x-actor': text.replaceAll(' ', '') } }),
    ];
    t.same(
      responses.map(({ status }) => status),
      [422, 422, 422, 400],
      text,
    );
    t.match(
      responses[0]?.body.message,
      'label must be a text of 1 to 100 characters on one line, without anything that',
    );
    t.notMatch(JSON.stringify(responses), generatedKey.slice(9, 15));
  }
  const events = await database.selectFrom('events').selectAll().execute();
  t.notMatch(JSON.stringify(events), /svc_live_\w/i);
  const fine = { environment: 'live', label: 'svc live, the one of the till' };
  t.equal((await call('POST', `/merchants/${id}/keys`, { body: fine })).status, 201);
});

t.test('key leak: an origin or status that contains a key is rejected and not echoed', async (t) => {
  const { call, createMerchant, database } = await registryFixture(t, 'sqlite::memory:');
  const { id } = await createMerchant();
  const wide = generatedKey.replaceAll(/[a-z]/g, (letter) => String.fromCharCode(letter.charCodeAt(0) + 0xfee0));
  for (const text of [
    generatedKey,
    `https://${generatedKey}:8443`,
    `*.${generatedKey}.example`,
    generatedKey.toUpperCase(),
    wide,
  ]) {
    const body = { originAllowlist: ['shop.example', text] };
    const responses = [
      await call('PATCH', `/merchants/${id}`, { body }),
      await call('POST', '/merchants', { body: { name: 'x', ...body } }),
    ];
    for (const response of responses) {
      const message = 'originAllowlist[1] must not contain anything that looks like an API key';
      t.match(response, { status: 422, body: { message, data: { errors: [{ path: 'originAllowlist[1]' }] } } }, text);
    }
    t.notMatch(JSON.stringify(responses).toLowerCase(), generatedKey.slice(9, 15).toLowerCase());
  }
  for (const status of ['SVC_LIVE_ABC', 'OLD_SVC_TEST_']) {
    const response = await call('PATCH', `/merchants/${id}`, { body: { status } });
    t.match(response, { status: 422, body: { message: /^status must be a word/ } });
    t.notMatch(JSON.stringify(response), status);
  }
  const rows = await database.selectFrom('events').selectAll().execute();
  t.notMatch(JSON.stringify([rows, (await call('GET', '/exports')).body]), /svc_(live|test)_/i);
  const fine = { originAllowlist: ['svc-live.example'], status: 'SUSPENDED_LIVE' };
  t.match(await call('PATCH', `/merchants/${id}`, { body: fine }), { status: 200, body: { data: fine } });
});

t.test('key leak: a key given as a permission is not echoed', async (t) => {
  const { call, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  const { id } = await createMerchant();
  for (const text of [generatedKey, generatedKey.toUpperCase(), `payouts:${generatedKey}`]) {
    const body = { environment: 'live', permissions: ['payouts:*', text] };
    const response = await call('POST', `/merchants/${id}/keys`, { body });
    const message = 'permissions: must not contain anything that looks like an API key';
    t.match(response, { status: 422, body: { message, data: { errors: [{ path: 'permissions', message }] } } }, text);
    t.notMatch(JSON.stringify(response).toLowerCase(), generatedKey.slice(9, 15).toLowerCase());
  }
});

// Regression: a key that was pasted in place of an id was stored in an event, either as the id of the merchant or in a
// filter.
t.test('key leak: a key in place of an id is not stored in an event', async (t) => {
  const { app, call, createMerchant, database } = await registryFixture(t, 'sqlite::memory:');
  const { id } = await createMerchant();
  for (const text of [generatedKey, generatedKey.toUpperCase(), generatedKey.replace('live', 'test')]) {
    for (const at of ['', '/keys', '/usage', '/refusals', '/addresses', '/members'])
      t.equal((await call('GET', `/merchants/${text}${at}`)).status, 404, at);
    for (const at of ['', '/usage']) t.equal((await call('GET', `/keys/${text}${at}`)).status, 404, at);
    const person = { name: 'ada', roles: ['support'] };
    const responses = [
      await call('POST', `/events/exports?merchantId=${text}`),
      await call('POST', `/events/exports?keyId=${text}`),
      await call('POST', `/events/exports?administratorId=${text}`),
      await call('POST', `/events/exports?requestId=${text}`),
      await call('POST', `/events/exports?proof=token:${text}`),
      await call('GET', `/exports?merchantId=${text}`),
      await call('GET', `/exports?after=key:${text}`),
      await call('POST', '/administrators', { body: { ...person, issuer: 'https://a.example', subject: text } }),
      await call('POST', '/administrators', { body: { ...person, issuer: `https://${text}`, subject: '1' } }),
    ];
    for (const [index, { status }] of responses.entries()) t.equal(status, 422, `${text} in request ${index}`);
    t.notMatch(JSON.stringify(responses).toLowerCase(), generatedKey.slice(9, 15).toLowerCase());
  }
  t.equal((await call('GET', `/merchants/${id}/keys`)).status, 200);
  await app.close();
  const events = await database.selectFrom('events').selectAll().execute();
  t.match(events, [{ action: 'merchant.created' }, { action: 'merchant.read', merchant_id: id }]);
  t.equal(events.length, 2);
});

// Regression: the registry stored the key in the request for approval and in its event, which are shown to other
// administrators.
t.test('key leak: a key in place of the reference of a funding is not stored', async (t) => {
  const { call, database } = await registryFixture(t, 'sqlite::memory:');
  const tess = await call<{ id: string }>('POST', '/administrators', { body: { name: 'tess', roles: ['treasurer'] } });
  const created = await call<{ token: string }>('POST', '/tokens', {
    body: { name: 'laptop', administratorId: tess.body.data.id },
  });
  const headers = { authorization: `Bearer ${created.body.data.token}` };
  const funding = {
    ...{ walletId: '0192f3a0-0000-7000-8000-000000000001', environment: 'live', currency: 'NGN', amount: 1 },
    reference: 'svc-live-deposit-1',
  };
  const request = (reference: string) => call('POST', '/approvals', { body: { ...funding, reference }, headers });
  for (const text of [
    generatedKey,
    generatedKey.toUpperCase(),
    generatedKey.replace('live', 'test'),
    `deposit:${generatedKey}`,
  ]) {
    const response = await request(text);
    t.match(response, { status: 422, body: { data: { errors: [{ path: 'reference' }] } } }, text);
    t.match(response.body.message, /without anything that looks like an API key/);
    t.notMatch(JSON.stringify(response).toLowerCase(), generatedKey.slice(9, 15).toLowerCase());
  }
  t.equal((await request(funding.reference)).status, 201);
  const approvals = await database.selectFrom('approvals').selectAll().execute();
  const events = await database.selectFrom('events').selectAll().execute();
  t.equal(approvals.length, 1);
  t.notMatch(JSON.stringify([approvals, events]), /svc_(live|test)_/i);
});

// Regression: the services stored the key as the id of a wallet's merchant, and in the event about reading wallets.
t.test('key leak: the services do not store a key that an operator sends as the id of a merchant', async (t) => {
  const services = await servicesFixture(t);
  const { database, clock } = services;
  const time = new ManualTime();
  const attempts = new OperatorAttempts({ database, clock, now: time.now, timers: time, waiting: () => 0 });
  const { move, open, operate } = operatorsOf(t, services, { storesEvents: true, attempts });
  const walletId = await open('merchant_a');
  for (const text of [generatedKey, generatedKey.toUpperCase(), generatedKey.replace('live', 'test')]) {
    const wallet = { merchantId: text, environment: 'live', currency: 'NGN' };
    const responses = [
      await operate('GET', `/wallets?merchantId=${text}`),
      await operate('POST', '/wallets', wallet),
      await move('fund', walletId, 1, { merchantId: text }),
    ];
    for (const { status, body } of responses) {
      t.equal(status, 422, text);
      t.match(
        body.message,
        'merchantId must be the id of a merchant: 1 to 64 letters, digits, - and _, without anything',
      );
    }
    t.notMatch(JSON.stringify(responses).toLowerCase(), generatedKey.slice(9, 15).toLowerCase());
  }
  await attempts.stop();
  t.match(await database.selectFrom('wallets').selectAll().execute(), { length: 1 });
  t.match(await database.selectFrom('operator_events').selectAll().execute(), { length: 1 });
});

// Regression: the services stored a payout whose reference was the merchant's own key.
t.test('key leak: the services do not store a key that a merchant sends in a text', async (t) => {
  const { call, database } = await servicesFixture(t);
  const walletId = await addWallet(database, merchantA, { balance: 1000, isDefault: true });
  const recipient = { amount: 1, currency: 'NGN', recipient: '+2348012345678' };
  const customer = { email: 'a@example.com', firstName: 'Ada', lastName: 'Obi' };
  for (const text of [generatedKey, generatedKey.replace('svc_live', 'SVC_Test'), `old${generatedKey}`]) {
    const responses = [
      await call(merchantA, 'POST', '/payouts', { body: { ...recipient, reference: text } }),
      await call(merchantA, 'POST', '/payouts', { body: { ...recipient, recipient: text } }),
      await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { remarks: text }) }),
      await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { destinationAccountName: text }) }),
      await call(merchantA, 'POST', '/dev/customers', { body: { ...customer, firstName: text } }),
      await call(merchantA, 'POST', '/dev/customers', { body: { ...customer, lastName: text } }),
    ];
    for (const { status, body } of responses) {
      t.equal(status, 422);
      t.match(body.message, /without anything that looks like an API key/);
    }
    t.notMatch(JSON.stringify(responses), generatedKey.slice(9, 15));
  }
  const stored = [
    await database.selectFrom('payouts').selectAll().execute(),
    await database.selectFrom('customers').selectAll().execute(),
  ];
  t.same(stored, [[], []]);
});

// Errors are kept in terminals, in the logs of jobs and in tickets. Regression: `keys create --environment svc_live_…`
// echoed the key in its error. A response did so too if a field had a key as its name.
const keys = [generateApiKey('live'), generateApiKey('test')];
const given = keys.flatMap((key) => [key, key.toUpperCase(), `x${key}`, key.replace('svc', '%73vc')]);

function assertKeyless(t: Test, text: string, what: string): void {
  for (const key of keys) t.notMatch(text.toLowerCase(), key.slice(9, 15).toLowerCase(), what);
}

t.test('key leak: the APIs do not echo a key used as a field or query parameter name', async (t) => {
  const { call } = await registryFixture(t, 'sqlite::memory:');
  for (const name of given) {
    const responses = [
      await call('POST', '/merchants', { body: { name: 'Ada', [name]: 1 } }),
      await call('POST', '/merchants', { body: `{"name":"Ada","${name}":1,"${name}":2}` }),
      await call('GET', `/merchants?${encodeURIComponent(name)}=1`),
    ];
    for (const response of responses) {
      t.equal(response.status, 422, name);
      assertKeyless(t, JSON.stringify(response.body), name);
    }
    t.match(
      responses[0]?.body.message,
      /svc_(live|test)_… is not a known field$/i,
      'the error still names the problem',
    );
  }
});

t.test('key leak: the services do not echo a key used as a field or query parameter name', async (t) => {
  const app = createRestApp({ admit: () => undefined });
  t.teardown(() => app.close());
  app.post('/payouts', { schema: { body: Type.Object({}), querystring: Type.Object({}) } }, () => null);
  for (const name of given) {
    for (const [url, payload] of [
      ['/payouts', { [name]: 1 }],
      [`/payouts?${encodeURIComponent(name)}=1`, {}],
    ] as const) {
      const response = await app.inject({ method: 'POST', url, payload });
      t.equal(response.statusCode, 422, name);
      assertKeyless(t, response.body, name);
    }
  }
});

async function runCommand(...args: string[]): Promise<{ status: number; text: string }> {
  let text = '';
  const add = (more: string): void => void (text += more);
  const status = await run(args, { out: add, err: add });
  return { status, text };
}

const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-secret-'));
t.teardown(() => rm(directory, { recursive: true }));
const tokenFile = path.join(directory, 'token');
await writeFile(tokenFile, token);

t.test('key leak: the command line does not echo a key passed as the wrong argument', async (t) => {
  for (const key of given) {
    const create = ['keys', 'create', '--merchant', 'm_1'];
    for (const args of [
      [...create, '--environment', key],
      [...create, '--environment', 'live', '--expires-in', key],
      ['keys', 'reset', 'key_1', '--grace', key],
      ['keys', 'list', `--${key}`],
      ['keys', 'list', '--merchant', 'm_1', key],
      ['keys', key],
      [key],
      ['keys', 'import', key, '--registry', 'http://127.0.0.1:1', '--token-file', tokenFile],
      ['keys', 'list', '--merchant', 'm_1', '--token-file', key],
      ['keys', 'list', '--merchant', 'm_1', '--config', key],
      ['database', 'migrate', key],
      ['audit', 'verify', key],
    ]) {
      const { status, text } = await runCommand(...args);
      t.not(status, 0, args.join(' '));
      assertKeyless(t, text, args.join(' '));
    }
  }
});

t.test('key leak: the command line does not echo a token passed instead of its file name', async (t) => {
  const base64 = 'ab/cdEF0ghIJklMNopQRstUVwxYZ0123456789+/ABC=';
  for (const secret of ['2197c4'.repeat(10), token, base64]) {
    const { status, text } = await runCommand('merchants', 'list', '--token-file', secret);
    t.equal(status, 1);
    t.notMatch(text, secret.slice(0, 12));
    t.match(text, /^The token file cannot be read: .* Write the secret to a file and configure the path of that file/);
  }
  for (const file of [
    path.join(directory, 'a-token-of-administrators-0123456789'),
    './a-token-0123456789-0123456789-01',
  ]) {
    const { text } = await runCommand('merchants', 'list', '--token-file', file);
    t.equal(text, `The token file ${file} cannot be read: there is no such file.\n`, 'a path is shown');
  }
});

// The log line of a request rejected for its origin names the deciding header and the host in it. Browsers send whole
// URLs in Referer: paths and queries contain sessions and reset links, and a password may stand before the host.

const leaks: readonly (readonly [header: string, value: string, reason: string])[] = [
  ['referer', 'https://evil.example/reset/s3cr3t-path?token=s3cr3t-query#s3cr3t-part', 'Referer evil.example'],
  ['referer', 'https://user:s3cr3t-password@evil.example:8443/', 'Referer evil.example:8443'],
  ['referer', 'https://a@s3cr3t@evil.example/', 'Referer evil.example'],
  ['referer', '/s3cr3t-path', 'Referer (without a host)'],
  ['referer', 'evil.example?s3cr3t-query', 'Referer evil.example'],
  ['origin', 'https://user:s3cr3t-password@evil.example', 'Origin evil.example'],
  ['origin', 'null', 'Origin null'],
  ['origin', 'https://svc_live_s3cr3tKey0s3cr3tKey1.example', 'Origin svc_live_'],
];

t.test('key leak: a rejected Origin or Referer is logged without path, query, password or key', async (t) => {
  const gateway = await startTestGateway(t, {
    records: recordsOf(liveKey, { merchant: { originAllowlist: ['shop.example'] } }),
  });
  for (const [header, value, reason] of leaks) {
    gateway.lines.length = 0;
    const headers: (readonly [string, string])[] = [
      ['x-api-key', liveKey],
      [header, value],
    ];
    t.match(await ask(gateway, { headers }), { status: 401 }, value);
    const [line] = gateway.lines;
    t.match(line, { event: { code: 'origin_not_allowed', reason } });
    t.notMatch(JSON.stringify(line), 's3cr3t', value);
  }
});
