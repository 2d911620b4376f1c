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
} from '../http/harness.js';
import { until } from '../telemetry/open-log.js';

// Callers put keys where they do not belong, and the log kept them: in the path, the user agent, a proxy's request id.
const secret = 'Nw5RigG5NVB9klCpPCcKcdJvPQgIsFyJeuMKA6w4TCK0hoHEe';
const key = `svc_live_${secret}`;
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
