import t from 'tap';
import type { SharedRate, TokenTake } from '../../src/gateway/ports.js';
import { BadKeyThrottle } from '../../src/edge/auth/bad-key-throttle.js';
import { GatewayError } from '../../src/edge/request/errors.js';
import { MerchantRate } from '../../src/edge/auth/merchant-rate.js';
import { sourceOf } from '../../src/policy/client-address.js';
import { TokenBucket } from '../../src/gateway/token-bucket.js';
import { denials } from '../../src/policy/decision-table.js';
import type { DenialCode } from '../../src/policy/decision-table.js';
import { address } from '../policy/fixtures.js';
import { ask, liveKey, recordsOf, startTestGateway, startUpstream } from './harness.js';
import { reasons } from './reasons.js';

const limits = {
  ...{ badKeys: 3, totalBadKeys: 1_000_000, windowSeconds: 60, pauseSeconds: 30, maxSources: 100 },
  ...{ lookupsPerSecond: 2, totalLookupsPerSecond: 1 },
};

/** The result for a source after a denial: the denial code, or the throttling code with its retry-after. */
function resultOf(throttle: BadKeyThrottle, source: string, denial: DenialCode): string {
  try {
    throttle.denied(source, denial);
    return denial;
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    return `${error.code} ${error.retryAfterSeconds}`;
  }
}

t.test('clients are counted per address, and in IPv6 per /64', (t) => {
  t.equal(sourceOf(address('192.0.2.7')), '192.0.2.7');
  t.equal(sourceOf(address('::ffff:192.0.2.7')), '192.0.2.7');
  const one = sourceOf(address('2001:db8:1:2::1'));
  t.equal(sourceOf(address('2001:db8:1:2:ffff:ffff:ffff:ffff')), one);
  t.not(sourceOf(address('2001:db8:1:3::1')), one);
  t.not(sourceOf(address('::1')), sourceOf(address('2001:db8::1')));
  t.end();
});

t.test('a source is throttled after `badKeys` bad keys within the window, and free again after the pause', (t) => {
  let now = 0;
  const throttle = new BadKeyThrottle(limits, () => now);
  t.equal(resultOf(throttle, 'a', 'key_unknown'), 'key_unknown');
  t.equal(resultOf(throttle, 'a', 'key_format'), 'key_format');
  now += 60_000;
  t.equal(resultOf(throttle, 'a', 'key_unknown'), 'key_unknown', 'a new window begins');
  t.equal(resultOf(throttle, 'a', 'key_inactive'), 'key_inactive');
  t.equal(throttle.throttled, 0);
  t.equal(resultOf(throttle, 'a', 'test_key_in_live'), 'test_key_in_live', 'the last denial before throttling');
  t.equal(throttle.throttled, 1);
  t.equal(resultOf(throttle, 'a', 'key_unknown'), 'throttled 30');
  t.equal(resultOf(throttle, 'b', 'key_unknown'), 'key_unknown', 'other sources are not throttled');
  now += 29_500;
  t.equal(resultOf(throttle, 'a', 'key_unknown'), 'throttled 1', 'the rest of the pause');
  now += 499;
  t.equal(throttle.isQuiet, false);
  now += 1;
  t.equal(throttle.throttled, 0);
  t.equal(throttle.isQuiet, true, 'at the moment the pause ends');
  t.equal(resultOf(throttle, 'a', 'key_unknown'), 'key_unknown');
  t.equal(resultOf(throttle, 'a', 'key_unknown'), 'key_unknown', 'the count starts again at zero');
  t.end();
});

t.test('permission denials of valid keys do not count; a throttled source cannot probe whether a key exists', (t) => {
  const now = 0;
  const counted = denials
    .map(({ code }) => code)
    .filter((code) => {
      const throttle = new BadKeyThrottle({ ...limits, badKeys: 1 }, () => now);
      resultOf(throttle, 'a', code);
      return throttle.throttled === 1;
    });
  t.same(counted, [
    ...['https_required', 'tor_blocked', 'key_required', 'key_format'],
    ...['test_key_in_live', 'live_key_in_test', 'key_unknown', 'key_inactive'],
  ]);
  const throttle = new BadKeyThrottle({ ...limits, badKeys: 1 }, () => now);
  resultOf(throttle, 'a', 'key_unknown');
  const unthrottled = denials.map(({ code }) => code).filter((code) => resultOf(throttle, 'a', code) === code);
  t.same(unthrottled, ['https_required', 'tor_blocked', 'key_required', 'permission_denied']);
  t.end();
});

t.test('many bad requests during a pause extend it; a few do not', (t) => {
  let now = 0;
  const throttle = new BadKeyThrottle(limits, () => now);
  const flood = (count: number): string[] =>
    Array.from({ length: count }, () => resultOf(throttle, 'a', 'key_unknown'));
  flood(3);
  now += 20_000;
  t.same(flood(3), ['throttled 10', 'throttled 10', 'throttled 10']);
  t.same(flood(1), ['throttled 30'], 'as many as caused the throttling');
  now += 29_000;
  t.same(flood(1), ['throttled 1'], 'two in that pause are too few');
  now += 1_000;
  t.same(flood(1), ['key_unknown']);
  t.end();
});

t.test('sources below their own limit are throttled together once their total is too high', (t) => {
  let now = 0;
  const throttle = new BadKeyThrottle({ ...limits, totalBadKeys: 10 }, () => now);
  for (let count = 0; count < 7; count += 1) resultOf(throttle, String(count), 'key_required');
  for (let count = 0; count < 2; count += 1) resultOf(throttle, '6', 'key_required');
  t.ok(throttle.limits('6'), 'this source is throttled by its own limit');
  for (let count = 7; count < 10; count += 1) resultOf(throttle, String(count), 'key_required');
  t.notOk(throttle.isTotalReached, 'its bad keys no longer count in the total of the others');
  throttle.count(null);
  t.ok(throttle.isTotalReached, 'requests of unknown clients count too');
  t.ok(throttle.limits('new'));
  t.equal(resultOf(throttle, 'new', 'key_unknown'), 'key_unknown', 'no denial becomes a 429 because of other sources');
  now += 30_000;
  t.notOk(throttle.limits('new'));
  t.end();
});

t.test('beyond maxSources the oldest source is forgotten: memory stays bounded', (t) => {
  const throttle = new BadKeyThrottle({ ...limits, badKeys: 1, maxSources: 10 }, () => 0);
  for (let count = 0; count < 1000; count += 1) resultOf(throttle, String(count), 'key_unknown');
  t.equal(throttle.throttled, 10);
  t.equal(resultOf(throttle, '999', 'key_unknown'), 'throttled 30');
  t.equal(resultOf(throttle, '0', 'key_unknown'), 'key_unknown');
  t.end();
});

const tooMany = '{"success":false,"message":"Too many requests","data":null}';

t.test('a source of many bad keys gets 429 with retry-after, and a valid key from it still passes', async (t) => {
  const upstream = await startUpstream(t);
  const elsewhere = 'svc_live_ofAMerchantWhoMayNotCallFromHere';
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    records: {
      ...recordsOf(liveKey, { key: { permissions: ['transactions:read'] } }),
      ...recordsOf(elsewhere, {
        key: { keyId: 'key_2', merchantId: 'm_2' },
        merchant: { ipAllowlist: ['192.0.2.1'] },
      }),
    },
    config: { trustedProxies: ['127.0.0.1'], throttle: { badKeys: 4, pauseSeconds: 3600, windowSeconds: 3600 } },
  });
  const from = (client: string, key: string | null, method = 'GET') =>
    ask(gateway, {
      method,
      headers: [['x-forwarded-for', client], ...(key === null ? [] : [['x-api-key', key] as const])],
    });
  for (let count = 0; count < 4; count += 1) {
    t.equal((await from(`2001:db8:0:7::${count}`, `svc_live_guess${count}`)).status, 401);
  }
  for (const key of ['svc_live_another', 'svc_test_another', 'no key', elsewhere]) {
    const refused = await from('2001:db8:0:7::ffff', key);
    t.match({ status: refused.status, body: refused.body }, { status: 429, body: tooMany }, key);
    t.match(refused.header('retry-after'), /^3[56]\d\d$/);
    t.equal(refused.header('www-authenticate'), undefined);
  }
  const aggregateOf = (line: Record<string, unknown>) =>
    (line.gateway as { aggregate?: { count: number; codes: Readonly<Record<string, number>> } }).aggregate;
  // Leaves out the lines that several requests share, because the gateway can write these at any time.
  const ownLines = gateway.lines.filter((line) => aggregateOf(line) === undefined);
  t.match(ownLines.at(-1), {
    ...{ event: { code: 'throttled', reason: reasons.throttled }, http: { response: { status_code: 429 } } },
  });
  t.match(ownLines.at(-1), { organization: { id: 'm_2' } }, 'the line has the owner of the key');
  t.equal(ownLines.length, 4, 'the other requests share lines');
  t.equal((await from('2001:db8:0:7::1', liveKey)).status, 200);
  t.equal((await from('2001:db8:0:7::1', liveKey, 'POST')).status, 403);
  t.equal((await from('2001:db8:0:7::1', null)).status, 401, 'a missing key does not count as a guess');
  t.equal((await from('2001:db8:0:8::1', 'svc_live_another')).status, 401, 'the neighbouring network is not throttled');
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(metrics, 'gateway_throttled_sources 1');
  t.match(metrics, 'gateway_requests_total{code="throttled",status="429"');
  t.equal(upstream.seen.length, 1);
  await gateway.drain();
  const shared = gateway.lines.flatMap((line) => aggregateOf(line) ?? []);
  const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0);
  t.equal(
    sum(shared.map(({ count }) => count)),
    5,
    'the last guess, three throttled requests, and the one without a key',
  );
  t.equal(sum(shared.map(({ codes }) => codes.throttled ?? 0)), 3);
  t.equal(gateway.lines.length - shared.length, 7, 'each other request has its own line');
});

t.test('a trusted proxy that names no client is not throttled: everybody behind it shares its address', async (t) => {
  const gateway = await startTestGateway(t, {
    config: { trustedProxies: ['127.0.0.1'], throttle: { badKeys: 4, pauseSeconds: 3600, windowSeconds: 3600 } },
  });
  const guess = (number: number, headers: readonly (readonly [string, string])[]) =>
    ask(gateway, { headers: [...headers, ['x-api-key', `svc_live_guess${number}`]] });
  for (const headers of [[], [['x-forwarded-for', '127.0.0.1']]] as const) {
    for (let count = 0; count < 6; count += 1) t.equal((await guess(count, headers)).status, 401);
  }
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(metrics, 'gateway_throttled_sources 0');
  t.equal(gateway.lines.length, 12, 'each request has its own log line');
});

t.test('the throttle can be switched off', async (t) => {
  const gateway = await startTestGateway(t, { config: { throttle: { enabled: false, badKeys: 1 } } });
  for (let count = 0; count < 3; count += 1) {
    t.equal((await ask(gateway, { headers: [['x-api-key', 'svc_live_wrong']] })).status, 401);
  }
});

t.test('a token bucket allows its burst at once, then its rate per second', (t) => {
  let now = 0;
  const bucket = new TokenBucket(2, 4, () => now);
  const takes = (): boolean[] => Array.from({ length: 6 }, () => bucket.take());
  t.same(takes(), [true, true, true, true, false, false]);
  t.equal(bucket.tokens, 0);
  now += 250;
  bucket.take();
  t.equal(bucket.tokens, 0.5);
  now += 250;
  t.same(takes(), [true, false, false, false, false, false]);
  now += 3_600_000;
  t.same(takes(), [true, true, true, true, false, false], 'never more tokens than its size');
  t.end();
});

t.test('a merchant over its rate gets retry-after; other merchants are not delayed', (t) => {
  let now = 0;
  const rate = new MerchantRate({ requestsPerSecond: 2, burst: 3 }, null, () => now);
  const count = (merchantId: string): string => {
    let headers = '';
    try {
      const counted = rate.count(merchantId, (fields) => (headers = Object.values(fields).join(' ')));
      return counted instanceof Promise ? 'later' : headers;
    } catch (error) {
      return error instanceof GatewayError ? `${error.code} ${error.retryAfterSeconds}: ${headers}` : String(error);
    }
  };
  t.same(
    [count('m_1'), count('m_1'), count('m_1'), count('m_1'), count('m_2')],
    [
      '"merchant";q=3;w=2 "merchant";r=2;t=1 3 2 1',
      '"merchant";q=3;w=2 "merchant";r=1;t=1 3 1 1',
      '"merchant";q=3;w=2 "merchant";r=0;t=2 3 0 2',
      'rate_limited 1: "merchant";q=3;w=2 "merchant";r=0;t=2 3 0 2',
      '"merchant";q=3;w=2 "merchant";r=2;t=1 3 2 1',
    ],
  );
  now += 500;
  t.same(
    [count('m_1'), count('m_1')],
    ['"merchant";q=3;w=2 "merchant";r=0;t=2 3 0 2', 'rate_limited 1: "merchant";q=3;w=2 "merchant";r=0;t=2 3 0 2'],
  );
  t.same(rate.stats, {}, 'buckets are not shared');
  t.end();
});

t.test(
  'with a shared bucket it decides, with the same responses; without one the process counts for itself',
  async (t) => {
    let shared: TokenTake | null | Promise<TokenTake | null> = null;
    const rate = new MerchantRate({ requestsPerSecond: 2, burst: 3 }, { take: () => shared }, () => 0);
    const count = async (): Promise<string> => {
      let headers = '';
      try {
        await rate.count('m_1', (fields) => (headers = Object.values(fields).join(' ')));
        return headers;
      } catch (error) {
        return error instanceof GatewayError ? `${error.code} ${error.retryAfterSeconds}: ${headers}` : String(error);
      }
    };
    t.same(
      [await count(), await count()],
      ['"merchant";q=3;w=2 "merchant";r=2;t=1 3 2 1', '"merchant";q=3;w=2 "merchant";r=1;t=1 3 1 1'],
      'counted in the process, synchronously',
    );
    for (const [take, expected] of [
      [{ taken: true, tokens: 2 }, '"merchant";q=3;w=2 "merchant";r=2;t=1 3 2 1'],
      [{ taken: true, tokens: 0.25 }, '"merchant";q=3;w=2 "merchant";r=0;t=2 3 0 2'],
      [{ taken: false, tokens: 0.25 }, 'rate_limited 1: "merchant";q=3;w=2 "merchant";r=0;t=2 3 0 2'],
      [{ taken: false, tokens: 1 }, 'rate_limited 1: "merchant";q=3;w=2 "merchant";r=1;t=1 3 1 1'],
      [null, '"merchant";q=3;w=2 "merchant";r=0;t=2 3 0 2'],
      [null, 'rate_limited 1: "merchant";q=3;w=2 "merchant";r=0;t=2 3 0 2'],
    ] as const) {
      shared = Promise.resolve(take);
      t.equal(await count(), expected);
    }
    t.same(rate.stats, { together: 4, alone: 4 });
  },
);

t.test('gateways with a shared bucket limit as one gateway does, and report how they counted', async (t) => {
  const upstream = await startUpstream(t);
  let left = 3;
  const asked: string[] = [];
  let closed = 0;
  const sharedRate: SharedRate = {
    take: (merchantId) => {
      asked.push(merchantId);
      const taken = left >= 1;
      if (taken) left -= 1;
      return Promise.resolve({ taken, tokens: left });
    },
    close: () => {
      closed += 1;
      return Promise.resolve();
    },
  };
  const setup = { upstreamUrl: upstream.url, config: { rateLimit: { requestsPerSecond: 1, burst: 3 } }, sharedRate };
  const [one, other] = [await startTestGateway(t, setup), await startTestGateway(t, setup)];
  const headers = [['x-api-key', liveKey]] as const;
  const post = { method: 'POST', path: '/v1/payouts', headers, body: '{}' };
  t.match(await ask(one, { headers }), { status: 200 });
  t.equal((await ask(other, { headers, path: '/v1//payouts' })).status, 400, 'a counted request is judged as usual');
  const last = await ask(other, post);
  t.equal(last.status, 200);
  t.equal(last.header('ratelimit-remaining'), '0');
  const refused = await ask(one, post);
  t.match({ status: refused.status, body: refused.body }, { status: 429, body: tooMany });
  t.equal(refused.header('retry-after'), '1');
  t.equal(refused.header('ratelimit-limit'), '3');
  t.equal(refused.header('ratelimit-policy'), '"merchant";q=3;w=3');
  t.equal(refused.header('ratelimit'), '"merchant";r=0;t=3');
  t.equal(last.header('ratelimit'), '"merchant";r=0;t=3');
  t.match(one.lines.at(-1), {
    ...{ event: { code: 'rate_limited', reason: reasons.rate_limited }, organization: { id: 'm_1' } },
  });
  t.equal((await ask(other, { headers: [['x-api-key', 'svc_live_wrong']] })).status, 401);
  t.equal((await ask(other, { headers, path: '/nowhere' })).status, 429, 'the rate is checked before the route');
  t.same(asked, ['m_1', 'm_1', 'm_1', 'm_1', 'm_1'], 'only authenticated merchants are counted');
  t.equal(upstream.seen.length, 2);
  const metrics = await (await fetch(`http://127.0.0.1:${one.management}/metrics`)).text();
  t.match(metrics, 'gateway_rate_limit_counts_total{how="together"} 2');
  t.match(metrics, 'gateway_rate_limit_counts_total{how="alone"} 0');
  await one.drain();
  t.equal(closed, 1);
});

t.test('the rate limit is off by default; when on, headers report it', async (t) => {
  const upstream = await startUpstream(t);
  const headers = [['x-api-key', liveKey]] as const;
  const free = await startTestGateway(t, { upstreamUrl: upstream.url });
  const unlimited = await ask(free, { headers });
  for (const name of ['ratelimit-limit', 'ratelimit-policy', 'ratelimit']) t.equal(unlimited.header(name), undefined);
  const limited = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { rateLimit: { requestsPerSecond: 1, burst: 1 } },
  });
  const responses = await Promise.all(Array.from({ length: 12 }, () => ask(limited, { headers })));
  const passed = responses.filter(({ status }) => status === 200);
  const refused = responses.filter(({ status }) => status === 429);
  t.equal(passed.length + refused.length, 12);
  t.ok(passed.length > 0 && refused.length > 0, `${passed.length} passed, ${refused.length} were refused`);
  for (const response of responses) {
    t.equal(response.header('ratelimit-limit'), '1');
    t.equal(response.header('ratelimit-policy'), '"merchant";q=1;w=1');
    t.match(response.header('ratelimit'), /^"merchant";r=0;t=[01]$/);
  }
  for (const response of refused) {
    t.equal(response.body, tooMany);
    t.equal(response.header('retry-after'), '1');
    t.equal(response.header('ratelimit-remaining'), '0');
  }
  t.ok(limited.lines.some((line) => (line.event as { code: string }).code === 'rate_limited'));
  t.equal((await ask(limited, { headers: [['x-api-key', 'svc_live_wrong']] })).header('ratelimit-limit'), undefined);
});
