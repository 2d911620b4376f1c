import t from 'tap';
import { ask, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';

// Node 20 reads a thousand headers of a request, and drops the others silently. The gateway's own came last: with very many short
// ones in front a merchant's call reached a service without a merchant, an address and a signature.
t.test('no number of headers keeps from a service who calls', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    identity: { assertionFor: () => Promise.resolve('signed'), publicKeys: {} },
  });
  const many = Array.from({ length: 1_100 }, () => ['a', ''] as const);
  const trace = ['traceparent', `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`] as const;
  const headers = [...many, ['x-api-key', liveKey] as const, trace];
  const answer = await ask(gateway, { method: 'POST', path: '/v1/payouts', headers, body: '{}' });
  t.equal(answer.status, 200);
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
