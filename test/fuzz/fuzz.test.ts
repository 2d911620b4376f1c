import t from 'tap';
import { liveKey, startTestGateway, startUpstream } from '../edge/harness.js';
import type { RecordingUpstream } from '../edge/harness.js';
import { serviceBody } from './responses.js';
import { http1Case } from './http1-cases.js';
import { http1Problems } from './http1-run.js';
import { Random } from './random.js';
import { seconds, seed } from './run-length.js';

const batchesInTheSuite = 6;
const casesInABatch = 16;

const reserved = /^(?:forwarded|x-(?:api-key|real-ip|request-id|(?:merchant|gateway|forwarded)-.*))$/;

/** What reached the service although it must not. */
function intrusionsOf(upstream: RecordingUpstream, key: string | null): string[] {
  if (key === null && upstream.seen.length > 0) return ['a service was reached without a valid key'];
  return upstream.seen
    .flatMap(({ headers }) => Object.entries(headers))
    .filter(([name, value]) => reserved.test(name.replaceAll('_', '-')) && JSON.stringify(value).includes('forged'))
    .map(([name]) => `a service got a forged ${name}`);
}

t.test(`for any bytes over HTTP/1, the invariants hold (FUZZ_SEED=${seed})`, { timeout: 0 }, async (t) => {
  const upstream = await startUpstream(t);
  upstream.respond = (_request, response) => {
    response.setHeader('x-service', 'yes');
    response.end(serviceBody);
  };
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: {
      throttle: { enabled: false },
      // The gateway must end each request within these timeouts. Otherwise the test reports that the connection hangs.
      limits: { requestTimeoutSeconds: 2, headersTimeoutSeconds: 2 },
    },
  });
  const random = new Random(seed);
  // First without a key, so that any request at the service is an intrusion; then with one.
  for (const key of [null, liveKey]) {
    const end = performance.now() + ((seconds ?? 0) * 1000) / 2;
    let [batches, reached] = [0, 0];
    while (seconds === null ? batches < batchesInTheSuite : performance.now() < end) {
      batches += 1;
      const cases = Array.from({ length: casesInABatch }, () => http1Case(random, key));
      const found = await Promise.all(
        cases.map((parts) => http1Problems(gateway, parts).catch((error: unknown) => [String(error)])),
      );
      const broken = cases
        .map((parts, index) => ({ parts, problems: found[index] }))
        .filter(({ problems = [] }) => problems.length > 0);
      const intrusions = [...intrusionsOf(upstream, key), ...gateway.internalErrors.map(String)];
      if (broken.length + intrusions.length > 0) {
        t.same({ broken, intrusions }, { broken: [], intrusions: [] }, `batch ${batches} of seed ${seed}`);
        if (intrusions.length > 0) t.comment(JSON.stringify(cases));
        return;
      }
      reached += upstream.seen.length;
      upstream.seen.length = 0;
      gateway.lines.length = 0;
    }
    t.ok(
      key === null || reached > batches,
      `${batches * casesInABatch} cases, ${reached} requests reached the service`,
    );
  }
});
