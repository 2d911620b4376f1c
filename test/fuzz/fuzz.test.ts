import { setImmediate, setTimeout as delay } from 'node:timers/promises';
import t from 'tap';
import { connect, liveKey, startTestGateway, startUpstream } from '../http/harness.js';
import type { GatewayUnderTest, RecordingUpstream } from '../http/harness.js';
import { readAnswers } from './answers.js';
import { http1Case } from './http1-cases.js';
import { Random } from './random.js';

// Within the suite: few cases of a seed that stays. `npm run fuzz`: a minute of a new seed, which is printed.
const seconds = process.env.FUZZ_SECONDS === undefined ? null : Number(process.env.FUZZ_SECONDS);
const seed = Number(process.env.FUZZ_SEED ?? (seconds === null ? 20261120 : Date.now() % 2 ** 32));
const batchesInTheSuite = 6;
const casesInABatch = 16;
const quietMilliseconds = 60;
const hangMilliseconds = 30_000;

const reserved = /^(?:forwarded|x-(?:api-key|real-ip|request-id|(?:merchant|gateway|forwarded)-.*))$/;
const envelope = /^\{"success":false,"message":"[A-Za-z0-9 ().-]+","data":null\}$/;

/** Writes texts to a connection of their own and resolves with all that came back once the gateway has closed it. */
async function play(gateway: GatewayUnderTest, parts: readonly string[]): Promise<string> {
  const socket = connect(gateway.https, gateway.ca);
  let received = '';
  // Half-closed once nothing comes any more: what has not ended soon after that never does.
  const quiet = setTimeout(() => socket.end(), quietMilliseconds);
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    received += chunk;
    quiet.refresh();
  });
  socket.on('error', () => (received = '')); // a reset takes away what was not read yet
  const closed = new Promise<void>((resolve) => {
    socket.once('close', () => {
      resolve();
    });
  });
  for (const part of parts) {
    socket.write(part, 'latin1');
    await setImmediate();
  }
  const outcome = await Promise.race([closed, delay(hangMilliseconds, 'hangs', { ref: false })]);
  clearTimeout(quiet);
  socket.destroy();
  if (outcome === 'hangs') throw new Error('the connection hangs');
  return received;
}

/** What a case breaks; empty if nothing. */
async function problemsOf(gateway: GatewayUnderTest, parts: readonly string[]): Promise<string[]> {
  const problems: string[] = [];
  const answers = readAnswers(await play(gateway, parts));
  for (const { status, headers, body } of answers) {
    const isOwn = headers.get('x-service') === undefined;
    if (isOwn && body !== '' && !envelope.test(body)) problems.push(`answered ${status} ${body}`);
    if (!headers.has('x-request-id')) problems.push(`answered ${status} without a request id`);
  }
  const ids = new Set(answers.map(({ headers }) => headers.get('x-request-id') ?? ''));
  const logged = (): string[] => gateway.lines.map((line) => (line.http as { request: { id: string } }).request.id);
  const deadline = performance.now() + hangMilliseconds;
  while ([...ids].some((id) => !logged().includes(id)) && performance.now() < deadline) await setImmediate();
  for (const id of ids) {
    const count = logged().filter((one) => one === id).length;
    if (count !== 1) problems.push(`${count} lines in the log for the answer ${id}`);
  }
  if (gateway.internalErrors.length > 0) problems.push(`an internal error: ${String(gateway.internalErrors[0])}`);
  return problems;
}

/** What reached the service and should not have. */
function intrusionsOf(upstream: RecordingUpstream, key: string | null): string[] {
  if (key === null && upstream.seen.length > 0) return ['a service was reached without a valid key'];
  return upstream.seen
    .flatMap(({ headers }) => Object.entries(headers))
    .filter(([name, value]) => reserved.test(name.replaceAll('_', '-')) && JSON.stringify(value).includes('forged'))
    .map(([name]) => `a service got a forged ${name}`);
}

t.test(`whatever comes over a socket, the invariants hold (FUZZ_SEED=${seed})`, { timeout: 0 }, async (t) => {
  const upstream = await startUpstream(t);
  upstream.respond = (_request, response) => {
    response.setHeader('x-service', 'yes');
    response.end('{"success":true,"message":"OK","data":[]}');
  };
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { throttle: { enabled: false }, limits: { requestTimeoutSeconds: 2, headersTimeoutSeconds: 2 } },
  });
  const random = new Random(seed);
  // First without a key, so that whatever reaches the service is an intrusion; then with one.
  for (const key of [null, liveKey]) {
    const end = performance.now() + ((seconds ?? 0) * 1000) / 2;
    let [batches, reached] = [0, 0];
    while (seconds === null ? batches < batchesInTheSuite : performance.now() < end) {
      batches += 1;
      const cases = Array.from({ length: casesInABatch }, () => http1Case(random, key));
      const found = await Promise.all(
        cases.map((parts) => problemsOf(gateway, parts).catch((error: unknown) => [String(error)])),
      );
      const problems = cases.map((parts, index) => ({ parts, problems: found[index] ?? [] }));
      const broken = problems.filter((one) => one.problems.length > 0);
      const intrusions = intrusionsOf(upstream, key);
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
