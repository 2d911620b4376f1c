import { setTimeout as delay } from 'node:timers/promises';
import t from 'tap';
import { ask, liveKey, startTestGateway } from '../http/harness.js';
import type { GatewayUnderTest } from '../http/harness.js';
import { hangMilliseconds } from './answers.js';
import { depart, departure } from './departures.js';
import { startHastyService } from './hasty-service.js';
import { Random } from './random.js';
import { seconds, seed } from './run-length.js';

const batchesInTheSuite = 20;
const departuresInABatch = 16;
/** Less than any limit of time that would end a request, in milliseconds. */
const soonMilliseconds = 8_000;

/** Resolves with the ids of requests that have no line, or several, once that stays so. */
async function withoutOneLine(gateway: GatewayUnderTest, ids: ReadonlySet<string>): Promise<string[]> {
  const end = performance.now() + soonMilliseconds;
  for (;;) {
    const lines = gateway.lines.map((line) => (line.http as { request: { id: string } }).request.id);
    const odd = [...ids].filter((id) => lines.filter((one) => one === id).length !== 1);
    if (odd.length === 0 || performance.now() > end) return odd;
    await delay(5);
  }
}

t.test(`whoever leaves, and whenever, ends its own requests alone (FUZZ_SEED=${seed})`, { timeout: 0 }, async (t) => {
  const service = await startHastyService(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: service.url,
    config: { throttle: { enabled: false }, trustedProxies: ['127.0.0.1'] },
  });
  const random = new Random(seed);
  const end = performance.now() + (seconds ?? 0) * 1000;
  let [batches, reached] = [0, 0];
  while (seconds === null ? batches < batchesInTheSuite : performance.now() < end) {
    batches += 1;
    const departures = Array.from({ length: departuresInABatch }, () => departure(random));
    const left = Promise.all(departures.map((one) => depart(gateway, one)));
    const outcome = await Promise.race([left, delay(hangMilliseconds, 'hangs', { ref: false })]);
    const odd = await withoutOneLine(gateway, service.ids);
    const headers = [['x-api-key', liveKey], ['x-answer', 'early']] as const; // prettier-ignore
    const { status } = await ask(gateway, { headers });
    const found = { outcome: outcome === 'hangs' ? 'a connection hangs' : 'all closed', odd, status };
    const internal = gateway.internalErrors.map(String);
    const expected = { outcome: 'all closed', odd: [], status: 200, internal: [] };
    if (!t.same({ ...found, internal }, expected, `batch ${batches} of seed ${seed}`)) return;
    reached += service.ids.size;
    service.ids.clear();
    gateway.lines.length = 0;
  }
  t.ok(reached > batches, `${batches * departuresInABatch} clients left, ${reached} requests reached the service`);
});
