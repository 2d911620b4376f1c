import t from 'tap';
import type { Test } from 'tap';
import { OtlpTraces } from '../../src/adapters/otlp/otlp-traces.js';
import type { OtlpTracesOptions } from '../../src/adapters/otlp/otlp-traces.js';
import type { Span } from '../../src/gateway/ports.js';
import { ask, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';
import { startServer } from '../start-server.js';
import { until } from '../telemetry/open-log.js';

interface Received {
  readonly authorization: string | undefined;
  readonly body: {
    readonly resourceSpans: readonly {
      readonly resource: { readonly attributes: readonly unknown[] };
      readonly scopeSpans: readonly { readonly spans: readonly Record<string, unknown>[] }[];
    }[];
  };
}

/** A collector that records requests, and responds with `status`; null: it does not respond. */
async function startCollector(t: Test) {
  const received: Received[] = [];
  const collector = { received, url: '', status: 200 as number | null, open: 0 };
  const url = await startServer(t, (request, response) => {
    const chunks: Buffer[] = [];
    collector.open += 1;
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = JSON.parse(Buffer.concat(chunks).toString('utf8')) as Received['body'];
      received.push({ authorization: request.headers.authorization, body });
      if (collector.status !== null) response.writeHead(collector.status).end('{}');
    });
  });
  collector.url = `${url}/v1/traces`;
  return collector;
}

function openTraces(t: Test, endpoint: string, over: Partial<OtlpTracesOptions> = {}) {
  const problems: (string | null)[] = [];
  const traces = new OtlpTraces({
    endpoint,
    token: 'a-token-of-the-tests',
    ca: null,
    sampleOneIn: 1,
    resource: { 'service.name': 'merchant-gateway' },
    random: () => 0.5,
    onProblem: (problem) => problems.push(problem),
    gatherMilliseconds: 1,
    ...over,
  });
  t.teardown(() => traces.close(1));
  return { traces, problems };
}

const span: Span = {
  traceId: 'a'.repeat(32),
  spanId: 'b'.repeat(16),
  parentId: null,
  name: 'GET /payouts',
  startedAt: 1_800_000_000_000,
  duration: 1.5,
  failed: false,
  attributes: { text: 'x', whole: 200, part: 0.5 },
};

const spansOf = (received: readonly Received[]): Record<string, unknown>[] =>
  received.flatMap(({ body }) =>
    body.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((one) => one.spans)),
  );

t.test('a span has the form of OTLP', async (t) => {
  const collector = await startCollector(t);
  const { traces, problems } = openTraces(t, collector.url);
  traces.take(span);
  traces.take({ ...span, parentId: 'c'.repeat(16), failed: true });
  await until(() => traces.stats().exported === 2);
  t.same(traces.stats(), { exported: 2, dropped: 0 });
  t.equal(collector.received[0]?.authorization, 'Bearer a-token-of-the-tests');
  t.same(collector.received[0]?.body.resourceSpans[0]?.resource.attributes, [
    { key: 'service.name', value: { stringValue: 'merchant-gateway' } },
  ]);
  const [one, other] = spansOf(collector.received);
  t.same(one, {
    ...{ traceId: span.traceId, spanId: span.spanId, name: 'GET /payouts', kind: 2, status: {} },
    ...{ startTimeUnixNano: '1800000000000000000', endTimeUnixNano: '1800000000001500000' },
    attributes: [
      { key: 'text', value: { stringValue: 'x' } },
      { key: 'whole', value: { intValue: '200' } },
      { key: 'part', value: { doubleValue: 0.5 } },
    ],
  });
  t.match(other, { parentSpanId: 'c'.repeat(16), status: { code: 2 } });
  t.same(problems, []);
});

t.test('a collector that is slow, refuses or is down costs only spans', async (t) => {
  const collector = await startCollector(t);
  const { traces, problems } = openTraces(t, collector.url);
  collector.status = null;
  traces.take(span);
  await until(() => collector.open === 1);
  for (let count = 0; count < 5_000; count += 1) traces.take(span);
  t.equal(traces.stats().dropped, 5_000 - 4_096, 'the queue is bounded');
  t.equal(collector.open, 1, 'no second export while one is in flight');
  await traces.close(1);
  t.same(traces.stats(), { exported: 0, dropped: 5_001 }, 'closing does not wait');

  const second = openTraces(t, collector.url);
  for (const status of [503, 503, 200]) {
    collector.status = status;
    const before = second.traces.stats();
    second.traces.take(span);
    await until(() => Object.values(second.traces.stats()).join() !== Object.values(before).join());
  }
  t.same(second.traces.stats(), { exported: 1, dropped: 2 });
  t.same(second.problems, ['the collector responded with status 503', null], 'each problem is reported once');
  const unreachable = openTraces(t, 'http://127.0.0.1:1/v1/traces');
  unreachable.traces.take(span);
  await until(() => unreachable.problems.length === 1);
  t.same(unreachable.problems, ['the collector cannot be reached: ECONNREFUSED']);
  t.equal(problems.length, 1);
});

t.test('a collector that trickles its response times out, and the next spans are sent', async (t) => {
  let isDripping = true;
  const url = await startServer(t, (request, response) => {
    request.resume().on('end', () => {
      if (!isDripping) {
        response.end('{}');
        return;
      }
      const timer = setInterval(() => response.write(' '), 20);
      response.on('close', () => {
        clearInterval(timer);
      });
    });
  });
  const { traces, problems } = openTraces(t, `${url}/`, { timeoutMilliseconds: 3_000 });
  traces.take(span);
  await until(() => problems.length === 1);
  t.same(problems, ['the collector cannot be reached: timeout']);
  isDripping = false;
  traces.take(span);
  await until(() => traces.stats().exported === 1);
  t.equal(problems[1], null);
});

t.test('one request in `sampleOneIn` is sampled, at random', (t) => {
  const numbers = [0, 0.0999, 0.1, 0.5, 0.999];
  const { traces } = openTraces(t, 'http://127.0.0.1:1/', { sampleOneIn: 10, random: () => numbers.shift() ?? 1 });
  t.same(
    [1, 2, 3, 4, 5].map(() => traces.sample()),
    [true, true, false, false, false],
  );
  t.end();
});

t.test("a sampled request is a span of its trace, and the caller's flag is ignored", async (t) => {
  const upstream = await startUpstream(t);
  const collector = await startCollector(t);
  const chosen = [true, false, true];
  const { traces } = openTraces(t, collector.url, {
    sampleOneIn: 2,
    random: () => (chosen.shift() === true ? 0 : 0.9),
  });
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, traces });
  const [id, parent] = ['4bf92f3577b34da6a3ce929d0e0e4736', '00f067aa0ba902b7'];
  const headers = (flags: string) => [
    ['x-api-key', liveKey] as const,
    ['traceparent', `00-${id}-${parent}-${flags}`] as const,
  ];
  await ask(gateway, { path: `/v1/transactions/${liveKey}?q=1`, headers: headers('00') });
  await ask(gateway, { headers: headers('01') });
  await ask(gateway, { path: '/v1/payouts' });
  await gateway.drain();
  const flags = upstream.seen.map((seen) => String(seen.headers.traceparent).slice(-2));
  t.same(flags, ['01', '00'], "the forwarded flag says whether the gateway's span exists");
  const spans = spansOf(collector.received);
  t.equal(spans.length, 2, 'a drain exports the remaining spans');
  t.match(spans[0], { traceId: id, parentSpanId: parent, name: 'GET /transactions' });
  t.same(spans[0]?.status, {}, 'a success has no status code');
  t.equal(spans[0]?.spanId, String(upstream.seen[0]?.headers.traceparent).split('-')[2]);
  const attributes = JSON.stringify(spans);
  for (const expected of ['accepted', 'key_required', 'm_1', 'key_1', '/v1/transactions/svc_live_…', '/transactions']) {
    t.ok(attributes.includes(`"${expected}"`), expected);
  }
  t.notMatch(attributes, /TestOnly|q=1/, 'no more than the log contains');
});
