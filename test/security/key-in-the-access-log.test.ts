import t from 'tap';
import { recordsOf, ask, startTestGateway } from '../http/harness.js';

// Callers put keys where they do not belong, and the log kept them: in the path, the user agent, a proxy's request id.
const secret = 'Nw5RigG5NVB9klCpPCcKcdJvPQgIsFyJeuMKA6w4TCK0hoHEe';
const key = `svc_live_${secret}`;

t.test(
  'six characters of a key are in no line, header of an answer or metric, wherever the caller puts it',
  async (t) => {
    const gateway = await startTestGateway(t, {
      records: recordsOf(key),
      config: { trustedProxies: ['127.0.0.1'] },
      logSecret: Buffer.from('a secret of this test'),
    });
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
    ];
    const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
    t.equal(gateway.lines.length, answers.length);
    const everything = JSON.stringify([gateway.lines, answers, metrics]).toLowerCase();
    for (let at = 0; at + 6 <= secret.length; at += 1) {
      const piece = secret.slice(at, at + 6).toLowerCase();
      if (everything.includes(piece)) t.fail(`${piece} is told`);
    }
    t.match(everything, 'svc_live_…', 'that there was a key is told');
  },
);
