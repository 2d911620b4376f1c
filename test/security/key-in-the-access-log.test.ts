import { writeFileSync } from 'node:fs';
import path from 'node:path';
import tls from 'node:tls';
import { inspect } from 'node:util';
import t from 'tap';
import type { Span } from '../../src/gateway/ports.js';
import {
  ask,
  connect,
  exchangeBytes,
  parseAnswer,
  recordsOf,
  requestBytes,
  startTestGateway,
} from '../edge/harness.js';
import { makeCertificate } from '../edge/certificates.js';
import { until } from '../telemetry/open-log.js';
import { disguises, key, piecesOf, secret } from './disguised-keys.js';

/** Everywhere that the log shows what a caller wrote. */
const places: Readonly<Record<string, (text: string) => Parameters<typeof ask>[1]>> = {
  path: (text) => ({ path: `/v1/transactions/${text.replaceAll(/[\s"'\\]/g, encodeURIComponent)}` }),
  'path of no route': (text) => ({ path: `/${text.replaceAll(/[\s"'\\]/g, encodeURIComponent)}/more` }),
  'user agent': (text) => ({ headers: [['user-agent', `curl/8 (${text}) end`]] }),
  'user agent alone': (text) => ({ headers: [['user-agent', text]] }),
  origin: (text) => ({ headers: [['origin', `https://${text}.example`]] }),
  referer: (text) => ({ headers: [['referer', `https://shop.example@${text}/${text}`]] }),
};

t.test('however a key is taken apart or encoded, no part of it is in a line', async (t) => {
  const gateway = await startTestGateway(t, {
    records: recordsOf(key, { merchant: { originAllowlist: ['a.example'] } }),
  });
  for (const [how, disguise] of Object.entries(disguises)) {
    const pieces = piecesOf(disguise);
    for (const [where, put] of Object.entries(places)) {
      gateway.lines.length = 0;
      const { headers = [], ...what } = put(disguise(key));
      await ask(gateway, { ...what, headers: [['x-api-key', key], ...headers] });
      await until(() => gateway.lines.length === 1);
      const { event, ...rest } = gateway.lines[0] ?? {};
      const line = JSON.stringify([rest, (event as { readonly reason?: string }).reason]);
      const told = pieces.filter((piece) => line.toLowerCase().includes(piece));
      t.same(told.slice(0, 3), [], `${how}, in ${where}: ${line}`);
    }
  }
});

// Callers put keys where they do not belong, and the log kept them: in the path, the user agent, a proxy's request id.
const inspected = { depth: 20, maxArrayLength: null, maxStringLength: null, breakLength: Infinity };

t.test(
  'six characters of a key are in no line, answer, metric, span or error, wherever the caller puts it',
  async (t) => {
    const spans: Span[] = [];
    const gateway = await startTestGateway(t, {
      records: recordsOf(key),
      config: { trustedProxies: ['127.0.0.1'] },
      logSecret: Buffer.from('a secret of this test'),
      traces: {
        sample: () => true,
        take: (span) => spans.push(span),
        figures: () => ({ exported: 0, dropped: 0 }),
        close: () => Promise.resolve(),
      },
    });
    const raw = async (bytes: string) => parseAnswer(await exchangeBytes(connect(gateway.https, gateway.ca), bytes));
    const encoded = `svc%5Flive%5F${secret}`;
    const answers = [
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
      parseAnswer(await exchangeBytes(connect(gateway.http, null), requestBytes({ headers: [['x-api-key', key]] }))),
    ];
    const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
    await until(() => gateway.lines.length >= answers.length);
    t.equal(gateway.lines.length, answers.length, 'a line each');
    t.ok(spans.length > 20);
    const { lines, internalErrors } = gateway;
    const everything = inspect([lines, answers, metrics, spans, internalErrors], inspected).toLowerCase();
    for (let at = 0; at + 6 <= secret.length; at += 1) {
      const piece = secret.slice(at, at + 6).toLowerCase();
      if (everything.includes(piece)) t.fail(`${piece} is told`);
    }
    t.match(everything, 'svc_live_…', 'that there was a key is told');
  },
);

t.test('a key in the subject of a client certificate is in no line', async (t) => {
  const folder = t.testdir({});
  const authority = await makeCertificate({ names: ['authority.example'] });
  const client = await makeCertificate({ names: [`client ${key.slice(0, 40)}`], ca: authority });
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
  const socket = tls.connect({ port: gateway.https, rejectUnauthorized: false, cert: client.cert, key: client.key });
  t.match(await exchangeBytes(socket, requestBytes({})), 'Key is required');
  await until(() => gateway.lines.length === 1);
  t.match(gateway.lines[0], { tls: { client: { subject: 'CN=client svc_live_…' } } });
});
