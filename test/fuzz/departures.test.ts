import { setTimeout as delay } from 'node:timers/promises';
import t from 'tap';
import type { Test } from 'tap';
import type { Config, DeepPartial } from '../../src/config/schema.js';
import { ask, liveKey, startTestGateway } from '../edge/harness.js';
import type { GatewayUnderTest } from '../edge/harness.js';
import { leftOpen } from '../edge/left-open.js';
import { hangMilliseconds } from './responses.js';
import { depart, departure, fallAsleep } from './departures.js';
import type { Departure } from './departures.js';
import { startHastyService } from './hasty-service.js';
import { Random } from './random.js';
import { seconds, seed } from './run-length.js';

/**
 * Maximum time, in milliseconds, until the requests of the clients are logged and their connections are closed. The
 * default timeouts of requests are longer, so the cause cannot be such a timeout.
 */
const soonMilliseconds = 8_000;

/**
 * Waits until every request has exactly one log line, but no longer than `soonMilliseconds`.
 * @returns the ids of the requests that do not have exactly one
 */
async function withoutOneLine(gateways: readonly GatewayUnderTest[], ids: ReadonlySet<string>): Promise<string[]> {
  const end = performance.now() + soonMilliseconds;
  for (;;) {
    const lines = gateways
      .flatMap(({ lines }) => lines)
      .map((line) => (line.http as { request: { id: string } }).request.id);
    const odd = [...ids].filter((id) => lines.filter((one) => one === id).length !== 1);
    if (odd.length === 0 || performance.now() > end) return odd;
    await delay(5);
  }
}

/** A test in which clients leave two gateways. One of the gateways is behind a load balancer. */
interface Departures {
  readonly limits: DeepPartial<Config['limits']>;
  readonly batches: number;
  readonly clientsInABatch: number;
  /** Runs a client until it does nothing more. Resolves with a function that disconnects it; undefined: it has left. */
  readonly go: (gateway: GatewayUnderTest, departure: Departure) => Promise<(() => void) | undefined>;
}

/** Runs clients in batches, and checks that nothing remains of them. */
async function tryDepartures(t: Test, { limits, batches: most, clientsInABatch, go }: Departures): Promise<void> {
  const service = await startHastyService(t);
  const start = (proxyProtocol: boolean): Promise<GatewayUnderTest> =>
    startTestGateway(t, {
      upstreamUrl: service.url,
      config: { throttle: { enabled: false }, trustedProxies: ['127.0.0.1'], proxyProtocol, limits },
    });
  const direct = await start(false);
  const behindBalancer = await start(true);
  const gateways = [direct, behindBalancer];
  const random = new Random(seed);
  const end = performance.now() + ((seconds ?? 0) * 1000) / 2;
  let [batches, reached] = [0, 0];
  while (seconds === null ? batches < most : performance.now() < end) {
    batches += 1;
    const departures = Array.from({ length: clientsInABatch }, () => departure(random));
    const gone = Promise.all(departures.map((one) => go(one.proxyHeader === null ? direct : behindBalancer, one)));
    const ends = await Promise.race([gone, delay(hangMilliseconds, null, { ref: false })]);
    const odd = await withoutOneLine(gateways, service.ids);
    const open = await leftOpen(gateways, soonMilliseconds);
    const headers = [['x-api-key', liveKey], ['x-answer', 'early']] as const; // prettier-ignore
    const { status } = await ask(direct, { headers });
    const found = { outcome: ends === null ? 'a connection hangs' : 'all closed', open, odd, status };
    const internal = gateways.flatMap(({ internalErrors }) => internalErrors.map(String));
    const expected = { outcome: 'all closed', open: 0, odd: [], status: 200, internal: [] };
    if (!t.same({ ...found, internal }, expected, `batch ${batches} of seed ${seed}`)) return;
    for (const endOne of ends ?? []) endOne?.();
    reached += service.ids.size;
    service.ids.clear();
    for (const { lines } of gateways) lines.length = 0;
  }
  t.ok(reached > batches, `${batches * clientsInABatch} clients connected, ${reached} requests reached the service`);
}

t.test(`a client that leaves, at any time, ends only its own requests (FUZZ_SEED=${seed})`, { timeout: 0 }, (t) =>
  tryDepartures(t, {
    limits: {},
    batches: 20,
    clientsInABatch: 16,
    go: async (gateway, departure) => {
      await depart(gateway, departure);
      return undefined;
    },
  }),
);

t.test(`a client that stays and reads nothing is cut off (FUZZ_SEED=${seed})`, { timeout: 0 }, (t) =>
  tryDepartures(t, {
    limits: {
      headersTimeoutSeconds: 1,
      requestTimeoutSeconds: 1,
      keepAliveTimeoutSeconds: 1,
      answerTimeoutSeconds: 2,
    },
    batches: 1,
    clientsInABatch: 64,
    go: fallAsleep,
  }),
);
