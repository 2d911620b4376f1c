import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import type { Test } from 'tap';
import { MemoryRecords } from '../../src/adapters/memory/memory-records.js';
import type { StoredRecords } from '../../src/adapters/memory/memory-records.js';
import { Verifier } from '../../src/audit/verifier.js';
import { readLogLines } from '../../src/audit/log-lines.js';
import { run } from '../../src/cli/run.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { KeyStoreUnavailable, type KeyStore } from '../../src/gateway/key-store.js';
import type { TorExits } from '../../src/gateway/ports.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import { gatewayErrors } from '../../src/policy/gateway-errors.js';
import { denials } from '../../src/policy/decision-table.js';
import { keyFingerprint } from '../../src/telemetry/key-fingerprint.js';
import type { LineSink } from '../../src/telemetry/line-sink.js';
import { openLog, testSecret, until } from '../telemetry/open-log.js';
import {
  ask,
  connect,
  exchangeBytes,
  liveKey,
  parseResponse,
  recordsOf,
  requestBytes,
  startTestGateway,
  startUpstream,
  testKey,
} from './harness.js';
import type { Ask, GatewayUnderTest, RawResponse, RecordingUpstream } from './harness.js';
import { reasons } from './reasons.js';

interface Line {
  readonly http: {
    readonly request: { readonly id: string };
    readonly response: { readonly status_code: number; readonly body?: { readonly bytes: number } };
  };
  readonly organization?: { readonly id: string };
  readonly gateway: { readonly key?: { readonly id?: string; readonly fingerprint?: string } };
  readonly event: { readonly action: string; readonly code: string; readonly reason?: string };
}

/** An access log in the test's own file, with the lines written so far. */
class LogUnderTest implements LineSink {
  readonly file: string;
  readonly lines: Line[] = [];
  trouble: string | null = null;
  readonly #log;

  constructor(file: string) {
    this.file = file;
    this.#log = openLog(this.file);
  }

  write(line: string): void {
    this.lines.push(JSON.parse(line) as Line);
    this.#log.write(line);
  }
  problem = (): string | null => this.trouble;
  lost = (): number => this.#log.lost();
  foreignBytes = (): number => this.#log.foreignBytes();
  heldBytes = (): number => this.#log.heldBytes();
  close = (milliseconds: number): Promise<void> => this.#log.close(milliseconds);

  /** Reads the file after the drain: its request lines, and whether the hash chain is intact. */
  async read(): Promise<{ lines: Line[]; intact: boolean }> {
    const verifier = new Verifier({ secrets: [testSecret], running: false, partial: false });
    for await (const lines of readLogLines([this.file])) for (const line of lines) verifier.take(line);
    const lines = readFileSync(this.file, 'utf8').trimEnd().split('\n');
    return {
      lines: lines.map((line) => JSON.parse(line) as Line).filter(({ event }) => event.action === 'api-request'),
      intact: verifier.end().intact,
    };
  }
}

const keys = {
  inactive: 'svc_live_inactive000000',
  merchantInactive: 'svc_live_merchantInactive',
  merchantNotLive: 'svc_live_merchantNotLive',
  noAddress: 'svc_live_noAddress00000',
  noOrigin: 'svc_live_noOrigin000000',
  readOnly: 'svc_live_readOnly000000',
  unaskable: 'svc_live_unaskable00000',
  unforeseen: 'svc_live_unforeseen0000',
};

function records(): StoredRecords {
  const named = (name: string) => ({ keyId: `key_${name}`, merchantId: `m_${name}` });
  return {
    ...recordsOf(testKey, { key: { keyId: 'key_test', merchantId: 'm_test' } }),
    ...recordsOf(liveKey),
    ...recordsOf(keys.inactive, { key: { ...named('inactive'), status: 'REVOKED' } }),
    ...recordsOf(keys.merchantInactive, { key: named('mi'), merchant: { status: 'CLOSED' } }),
    ...recordsOf(keys.merchantNotLive, { key: named('nl'), merchant: { goLive: false } }),
    ...recordsOf(keys.noAddress, { key: named('na'), merchant: { ipAllowlist: [] } }),
    ...recordsOf(keys.noOrigin, { key: named('no'), merchant: { originAllowlist: [] } }),
    ...recordsOf(keys.readOnly, { key: { ...named('ro'), permissions: ['*:read'].map(() => 'payouts:read') } }),
  };
}

function keyStore(): KeyStore {
  const known = new RecordKeyStore(new MemoryRecords(records()));
  return {
    find: (lookupId) => {
      if (lookupId === lookupIdOf(keys.unaskable, null)) return Promise.reject(new KeyStoreUnavailable('unplugged'));
      if (lookupId === lookupIdOf(keys.unforeseen, null)) return Promise.reject(new Error('nobody foresaw this'));
      return known.find(lookupId);
    },
    unavailableReason: () => null,
    close: () => known.close(),
  };
}

const exit = '198.51.100.66';
/** The list cannot tell whether this address is an exit. */
const untold = '198.51.100.67';

const exits: TorExits = {
  has: ({ text }) => (text === untold ? null : text === exit),
  digest: null,
  unavailableReason: () => null,
  status: () => ({ available: true, digest: null, size: 1, ageSeconds: 0, sources: [] }),
  close: () => Promise.resolve(),
};

/** What a scenario uses, besides its API key. */
interface Scene {
  readonly gateway: GatewayUnderTest;
  readonly upstream: RecordingUpstream;
  readonly log: LogUnderTest;
}

function withKey(key: string, what: Ask = {}): Ask {
  return { ...what, headers: [['x-api-key', key], ...(what.headers ?? [])] };
}

/** Sends a request over plain HTTP. */
async function askPlainly({ gateway }: Scene, what: Ask): Promise<RawResponse> {
  return parseResponse(await exchangeBytes(connect(gateway.http, null), requestBytes(what)));
}

/** Sends a request, and closes the connection once the upstream has received it. Resolves with null (no response). */
async function hangUp({ gateway, upstream }: Scene, what: Ask): Promise<null> {
  const seen = upstream.seen.length;
  const socket = connect(gateway.https, gateway.ca);
  socket.on('error', () => undefined);
  socket.write(requestBytes(what));
  await until(() => upstream.seen.length > seen);
  socket.destroy();
  return null;
}

type Way = (scene: Scene) => Promise<RawResponse | null>;
const asking =
  (what: Ask): Way =>
  ({ gateway }) =>
    ask(gateway, what);
const writing =
  (bytes: string): Way =>
  async ({ gateway }) =>
    parseResponse(await exchangeBytes(connect(gateway.https, gateway.ca), bytes));

/**
 * For each code of a log line, a function that sends a request with this outcome. It resolves with the response; null
 * if there is none. The function for `upstream_timeout` sends nothing, because `upstream_busy` causes both outcomes.
 */
const ways: Readonly<Record<string, Way>> = {
  accepted: asking(withKey(liveKey)),
  https_required: (scene) => askPlainly(scene, withKey(liveKey)),
  tor_blocked: asking(withKey(liveKey, { headers: [['x-forwarded-for', exit]] })),
  key_required: asking({}),
  key_format: asking(withKey('sk_live_1')),
  test_key_in_live: asking(withKey(testKey)),
  live_key_in_test: asking(withKey(liveKey)),
  key_unknown: asking(withKey('svc_live_unknown')),
  key_inactive: asking(withKey(keys.inactive)),
  merchant_inactive: asking(withKey(keys.merchantInactive)),
  merchant_not_live: asking(withKey(keys.merchantNotLive)),
  ip_not_allowed: asking(withKey(keys.noAddress)),
  origin_not_allowed: asking(withKey(keys.noOrigin)),
  permission_denied: asking(withKey(keys.readOnly)),
  malformed_request: writing('garbage\r\n\r\n'),
  invalid_host: asking(withKey(liveKey, { host: null })),
  invalid_forwarded_for: asking(withKey(liveKey, { headers: [['x-forwarded-for', 'unknown']] })),
  invalid_path: asking(withKey(liveKey, { path: '/v1//payouts' })),
  not_found: asking(withKey(liveKey, { path: '/v1/nowhere' })),
  method_not_allowed: asking(withKey(liveKey, { method: 'TRACE' })),
  request_timeout: writing('GET / HTTP/1.1\r\nHost: loc'),
  body_too_large: asking(withKey(liveKey, { method: 'POST', path: '/v1/payouts', body: 'x'.repeat(2000) })),
  target_too_long: asking(withKey(liveKey, { path: `/v1/transactions?${'x'.repeat(5000)}` })),
  headers_too_large: asking(withKey(liveKey, { headers: [['x-filler', 'x'.repeat(5000)]] })),
  client_closed: (scene) => hangUp(scene, withKey(liveKey, { path: '/v1/dev/customers/silent' })),
  internal_error: asking(withKey(keys.unforeseen)),
  upstream_failed: asking(withKey(liveKey, { path: '/v1/dev/customers/reset' })),
  tor_list_unavailable: asking(withKey(liveKey, { headers: [['x-forwarded-for', untold]] })),
  key_store_unavailable: asking(withKey(keys.unaskable)),
  access_log_unavailable: async ({ gateway, log }) => {
    log.trouble = 'the disk is full';
    const response = await ask(gateway, withKey(liveKey));
    log.trouble = null;
    return response;
  },
  upstream_busy: async (scene) => {
    const seen = scene.upstream.seen.length;
    const first = ask(scene.gateway, withKey(liveKey, { path: '/v1/payouts/silent' }));
    await until(() => scene.upstream.seen.length > seen);
    const response = await ask(scene.gateway, withKey(liveKey, { path: '/v1/payouts' }));
    await first; // the upstream stays silent: upstream_timeout
    return response;
  },
  upstream_timeout: () => Promise.resolve(null),
};

/** These codes need many requests or load: throttle.test.ts and limits.test.ts check their lines and reasons. */
const brakes = ['throttled', 'rate_limited', 'overloaded'];

async function startScene(
  t: Test,
  environment: 'live' | 'test',
  directory = t.testdir(),
  headersTimeoutSeconds = 3, // a busy machine can take more than a second for a handshake
): Promise<Scene> {
  const upstream = await startUpstream(t);
  const respond = upstream.respond;
  upstream.respond = (request, response, body) => {
    if (request.url?.endsWith('/silent') === true) return;
    if (request.url?.endsWith('/reset') === true) request.socket.destroy();
    else respond(request, response, body);
  };
  const log = new LogUnderTest(`${directory}/${environment}.log`);
  const { url } = upstream;
  const gateway = await startTestGateway(t, {
    keyStore: keyStore(),
    torExits: exits,
    accessLog: log,
    logSecret: Buffer.from('a secret of the tests alone'),
    config: {
      environment,
      trustedProxies: ['127.0.0.1'],
      limits: { bodyBytes: 1000, headerBytes: 4096, headersTimeoutSeconds },
      upstreams: { transactions: { url }, customers: { url }, payouts: { url, maxInFlight: 1, timeoutSeconds: 3 } },
    },
  });
  return { gateway, upstream, log };
}

t.test('every outcome of a request writes exactly one line, with its code and the response sent', async (t) => {
  t.same(
    [...Object.keys(ways), ...brakes].toSorted(),
    ['accepted', ...denials.map(({ code }) => code), ...Object.keys(gatewayErrors)].toSorted(),
    'the scenarios cover every code',
  );
  t.same(
    Object.keys(reasons).toSorted(),
    [...denials.map(({ code }) => code), ...Object.keys(gatewayErrors)].toSorted(),
    'every refusal and failure has a reason',
  );
  const directory = t.testdir();
  const scenes = { live: await startScene(t, 'live', directory), test: await startScene(t, 'test', directory) };
  const expected: string[] = [];
  for (const [code, end] of Object.entries(ways)) {
    const scene = scenes[code === 'live_key_in_test' ? 'test' : 'live'];
    const response = await end(scene);
    expected.push(code);
    const lines = (): Line[] => [...scenes.live.log.lines, ...scenes.test.log.lines];
    await until(() => lines().some(({ event }) => event.code === code));
    const line = lines().find(({ event }) => event.code === code);
    if (response === null) continue;
    t.equal(line?.http.request.id, response.header('x-request-id'), code);
    t.equal(line?.http.response.status_code, response.status, code);
    const { body } = line?.http.response ?? {};
    if (body !== undefined) t.equal(body.bytes, response.body.length, `${code}: response bytes`);
  }
  await Promise.all([scenes.live.gateway.drain(), scenes.test.gateway.drain()]);
  const logs = await Promise.all([scenes.live.log.read(), scenes.test.log.read()]);
  t.same(
    logs.flatMap(({ lines }) => lines.map(({ event }) => event.code)).toSorted(),
    expected.toSorted(),
    'exactly one line per request',
  );
  const reasonOf = new Map<string, RegExp>(Object.entries(reasons));
  for (const { event } of logs.flatMap(({ lines }) => lines))
    t.match(event.reason ?? 'none', reasonOf.get(event.code) ?? /^none$/, `${event.code}: the reason in its line`);
  t.same(
    logs.map(({ intact }) => intact),
    [true, true],
  );
  t.equal(scenes.live.gateway.internalErrors.length, 1);

  // `explain --line` must give the same verdict, with the records and Tor exit list that the gateway used.
  writeFileSync(`${directory}/records.json`, JSON.stringify(records()));
  writeFileSync(`${directory}/exits.txt`, `${exit}\n`);
  for (const [environment, { lines }] of [
    ['live', logs[0]],
    ['test', logs[1]],
  ] as const) {
    const config = `${directory}/${environment}.yaml`;
    const keyStore = { kind: 'memory', memory: { recordsFile: `${directory}/records.json` } };
    const torExits = { sources: ['exits.txt'], allowReserved: true, snapshotFile: 'exits.json' };
    writeFileSync(config, JSON.stringify({ environment, trustedProxies: ['127.0.0.1'], keyStore, torExits }));
    for (const line of lines) {
      writeFileSync(`${directory}/line`, JSON.stringify(line));
      let out = '';
      const io = { out: (text: string) => (out += text), err: (text: string) => (out += text) };
      await run(['explain', '--config', config, '--line', `${directory}/line`, '--json'], io);
      t.match(out, new RegExp(`"verdict": \\{\\s+"code": "${line.event.code}"`), `${line.event.code} is explained`);
    }
  }
});

t.test('the line of a request whose client left says so, also for a payout and an incomplete request', async (t) => {
  const scene = await startScene(t, 'live');
  const { gateway, log } = scene;
  const payout = { method: 'POST', body: '{"amount":1}' };
  await hangUp(scene, withKey(liveKey, { ...payout, path: '/v1/payouts/silent' }));
  await until(() => log.lines.length === 1);
  const incomplete = [
    requestBytes(withKey(liveKey, { ...payout, path: '/v1/dev/customers/1' })).slice(0, -payout.body.length / 2),
    'GET /v1/transactions HTTP/1.1\r\nHost: loc',
  ];
  for (const bytes of incomplete) {
    const socket = connect(gateway.https, gateway.ca);
    socket.on('error', () => undefined);
    socket.resume().end(bytes);
    const count = log.lines.length;
    await until(() => log.lines.length > count);
  }
  t.match(
    log.lines.map(({ event }) => [event.code, event.reason]),
    [
      ['client_closed', /^the client disconnected$/],
      ['client_closed', /^the client disconnected before its request was complete$/],
      ['malformed_request', /^the client disconnected before its request was complete$/],
    ],
  );
});

t.test('the line of a request that the HTTP parser rejects has its port and the facts about TLS', async (t) => {
  const gateway = await startTestGateway(t);
  const tls = { version: '1.3', version_protocol: 'tls', cipher: /^TLS_/ };
  for (const [isTls, ready] of [
    [true, 'secureConnect'],
    [false, 'connect'],
  ] as const) {
    gateway.lines.length = 0;
    const socket = isTls ? connect(gateway.https, gateway.ca) : connect(gateway.http, null);
    await once(socket, ready);
    const { localPort: port } = socket;
    await exchangeBytes(socket, 'garbage\r\n\r\n');
    const [line = {}] = gateway.lines;
    t.match(line, { event: { code: 'malformed_request' }, source: { ip: '127.0.0.1', port } });
    if (isTls) t.match(line, { tls });
    else t.notOk('tls' in line);
  }
});

t.test('a line names the owner of an exposed key; the client learns nothing about it', async (t) => {
  const scene = await startScene(t, 'live');
  const { gateway, log } = scene;
  const before = await ask(gateway, withKey('svc_live_unknown', { headers: [['x-forwarded-for', exit]] }));
  const responses = [
    await ask(gateway, withKey(liveKey, { headers: [['x-forwarded-for', exit]] })),
    await askPlainly(scene, withKey(liveKey)),
    await ask(gateway, withKey(testKey)),
    await askPlainly(scene, withKey(keys.unaskable)),
  ];
  await until(() => log.lines.length === 5);
  t.same([responses[0]?.status, responses[0]?.body], [before.status, before.body]);
  const codes = ['tor_blocked', 'tor_blocked', 'https_required', 'test_key_in_live', 'https_required'];
  t.same(
    log.lines.map(({ event }) => event.code),
    codes,
  );
  t.same(
    log.lines.map(({ organization, gateway: { key } }) => [organization?.id, key?.id]),
    [
      [undefined, undefined],
      ['m_1', 'key_1'],
      ['m_1', 'key_1'],
      ['m_test', 'key_test'],
      [undefined, undefined],
    ],
  );
  const sent = ['svc_live_unknown', liveKey, liveKey, testKey, keys.unaskable];
  t.same(
    log.lines.map(({ gateway: { key } }) => key?.fingerprint),
    sent.map((key) => keyFingerprint(testSecret, key)),
    'the fingerprint is always present',
  );
  t.same(gateway.internalErrors, []);
});

t.test('the duration of a request ends with its response, also if its owner is looked up later', async (t) => {
  let release = (): void => undefined;
  const find: KeyStore['find'] = () =>
    new Promise((resolve) => {
      release = () => {
        resolve({ credential: null, source: 'store', ageMilliseconds: 0 });
      };
    });
  const keyStore: KeyStore = { find, unavailableReason: () => null, close: () => Promise.resolve() };
  const gateway = await startTestGateway(t, { keyStore });
  const askedAt = performance.now();
  await exchangeBytes(connect(gateway.http, null), requestBytes(withKey(liveKey)));
  const elapsed = performance.now() - askedAt;
  await wait(50);
  release();
  await until(() => gateway.lines.length === 1);
  const { event } = gateway.lines[0] as { readonly event: { readonly code: string; readonly duration: number } };
  t.equal(event.code, 'https_required');
  t.ok(event.duration <= elapsed * 1_000_000, `${event.duration} ns of ${elapsed} ms`);
});

const requests = Number(process.env.ACCESS_LOG_TEST_REQUESTS ?? 1500);
const connections = 24;

/** Sends requests in sequence, as a proxy that reports TLS. Aborts some at random after the response has begun. */
async function askManyTimes({ gateway }: Scene, count: number): Promise<void> {
  const headers = [['x-forwarded-proto', 'https']] as const;
  const kept = ['/v1/transactions', '/v1/nowhere', '/v1//'].flatMap((path) => [
    { path, headers },
    withKey(liveKey, { path, headers }),
    withKey('svc_live_unknown', { path, headers }),
  ]);
  for (let index = 0; index < count; index += 1) {
    const chance = Math.random();
    const socket = connect(gateway.http, null).setEncoding('latin1');
    let [received, wasReset] = ['', false];
    // A refused client may be reset before it reads the response; its log line must be written all the same.
    socket.on('error', () => (wasReset = true));
    if (chance < 0.3) socket.write(requestBytes(withKey(liveKey, { path: '/v1/dev/customers/slow', headers })));
    else if (chance < 0.4) socket.write('garbage\r\n\r\n');
    else socket.write(requestBytes(kept[index % kept.length] ?? {}));
    socket.on('data', (chunk: string) => {
      received += chunk;
      if (chance < 0.3) socket.destroy(); // abort after the start of the response
    });
    await new Promise((resolve) => socket.once('close', resolve));
    if (received === '' && !wasReset) throw new Error('a request got no response');
  }
}

t.test('one line per request, in an unbroken chain, while clients hang up at random', async (t) => {
  // With a short timeout for headers, the gateway would end some requests unread if the machine stalls for a second.
  const scene = await startScene(t, 'live', t.testdir(), 30);
  const { upstream, gateway, log } = scene;
  const respond = upstream.respond;
  upstream.respond = (request, response, body) => {
    if (request.url?.endsWith('/slow') !== true) {
      respond(request, response, body);
      return;
    }
    response.writeHead(200);
    response.write('x');
    response.once('close', () => response.end());
  };
  const share = Math.ceil(requests / connections);
  await Promise.all(Array.from({ length: connections }, () => askManyTimes(scene, share)));
  await until(() => log.lines.length >= share * connections);
  await gateway.drain();
  const { lines, intact } = await log.read();
  t.equal(lines.length, share * connections);
  t.ok(intact);
  t.ok(lines.some(({ event }) => event.code === 'client_closed'));
});

t.test('a valid client trace is continued; otherwise a new trace is started', async (t) => {
  const scene = await startScene(t, 'live');
  const { gateway, upstream, log } = scene;
  const id = '4bf92f3577b34da6a3ce929d0e0e4736';
  const parent = '00f067aa0ba902b7';
  const taken = [`00-${id}-${parent}-01`, `cc-${id}-${parent}-01-what-the-future-will-be`];
  const refused = [
    ...[`00-${'0'.repeat(32)}-${parent}-01`, `00-${id}-${'0'.repeat(16)}-01`, `ff-${id}-${parent}-01`],
    ...[`00-${id.toUpperCase()}-${parent}-01`, `00-${id}-${parent}-01-more`, `00-${id}-${parent}`, 'garbage', ''],
  ];
  const traceOf = async (...values: string[]): Promise<{ sent: string[]; logged: unknown; state: unknown }> => {
    const headers = values.map((value) => ['TraceParent', value] as const);
    const count = log.lines.length;
    const response = await ask(gateway, withKey(liveKey, { headers: [...headers, ['tracestate', 'a=1']] }));
    t.equal(response.status, 200);
    await until(() => log.lines.length > count);
    const seen = upstream.seen.at(-1)?.headers ?? {};
    const sent = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(String(seen.traceparent)) ?? [];
    return {
      sent: sent.slice(1),
      logged: (log.lines.at(-1) as unknown as { trace: unknown }).trace,
      state: seen.tracestate,
    };
  };
  for (const value of taken) {
    const { sent, logged, state } = await traceOf(value);
    t.same([sent[0], sent[2], logged, state], [id, '01', { id }, 'a=1'], value);
    t.not(sent[1], parent, 'the gateway adds its own span');
  }
  for (const values of [...refused.map((value) => [value]), [taken[0] ?? '', taken[0] ?? ''], []]) {
    const { sent, logged, state } = await traceOf(...values);
    t.equal(sent.length, 3);
    t.not(sent[0], id, values.join(' and '));
    t.same([sent[2], logged, state], ['00', { id: sent[0] }, undefined]);
  }
});
