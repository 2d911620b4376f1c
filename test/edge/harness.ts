import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import type { IncomingHttpHeaders } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import tls from 'node:tls';
import { MemoryRecords } from '../../src/adapters/memory/memory-records.js';
import type { StoredRecords } from '../../src/adapters/memory/memory-records.js';
import { TorExitList } from '../../src/adapters/tor/tor-exit-list.js';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { loadConfig } from '../../src/config/load.js';
import type { Config, DeepPartial } from '../../src/config/schema.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import type { Pepper } from '../../src/gateway/api-key.js';
import type { CallerIdentity, Clock, GeoIp, SharedRate, TorExits, TraceExport } from '../../src/gateway/ports.js';
import type { PublishedKeys } from '../../src/edge/observe/management.js';
import type { KeyStore } from '../../src/gateway/key-store.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import type { KeyRecord, MerchantRecord } from '../../src/gateway/records.js';
import type { UsagePort } from '../../src/edge/observe/usage-sender.js';
import { startGateway } from '../../src/edge/start-gateway.js';
import type { GatewayPorts, RunningGateway } from '../../src/edge/start-gateway.js';
import type { WarmUpEnd } from '../../src/edge/warm-up.js';
import { logSecretOf } from '../../src/telemetry/chain.js';
import type { CertificateChange } from '../../src/tls/tls-reload.js';
import type { LineSink } from '../../src/telemetry/line-sink.js';
import { parseIpAddress } from '../../src/policy/ip-address.js';

/** The part of a test that the harness needs. */
export interface Teardown {
  teardown(handler: () => unknown): void;
}

/** A live key that exists in the test records. */
export const liveKey = 'svc_live_4Vz1cQ8mXo2TestOnly';
export const testKey = 'svc_test_4Vz1cQ8mXo2TestOnly';

/** A request as received by an upstream. */
interface SeenRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
}

/** An upstream that records its requests; by default it responds with 200 and a small JSON body. */
export interface RecordingUpstream {
  readonly url: string;
  readonly port: number;
  readonly seen: SeenRequest[];
  /** The open connections of clients. */
  readonly sockets: Set<Socket>;
  respond: (request: http.IncomingMessage, response: http.ServerResponse, body: Buffer) => void;
}

export async function startUpstream(t: Teardown): Promise<RecordingUpstream> {
  const sockets = new Set<Socket>();
  const server = http.createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      const { method = '', url = '', headers, rawHeaders } = request;
      upstream.seen.push({ method, url, headers, rawHeaders, body });
      upstream.respond(request, response, body);
    });
  });
  server.maxHeadersCount = 0; // no limit, because the upstream is not under test
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const upstream: RecordingUpstream = {
    url: `http://127.0.0.1:${port}`,
    port,
    seen: [],
    sockets,
    respond: (_request, response) => {
      response.setHeader('content-type', 'application/json');
      response.end('{"success":true,"message":"OK","data":[]}');
    },
  };
  return upstream;
}

/** Starts a plain TCP server, for upstreams that violate HTTP. Resolves with its URL. */
export async function startBareUpstream(t: Teardown, onConnection: (socket: Socket) => void): Promise<string> {
  const server = net.createServer(onConnection);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const sockets = new Set<Socket>();
  server.on('connection', (socket) => sockets.add(socket));
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** One merchant's records, which by default allow everything. */
export function recordsOf(
  key: string,
  overrides: { key?: Partial<KeyRecord>; merchant?: Partial<MerchantRecord> } = {},
  pepper: Pepper | null = null,
): StoredRecords {
  const keyRecord: KeyRecord = {
    keyId: 'key_1',
    merchantId: 'm_1',
    environment: key.startsWith('svc_test_') ? 'test' : 'live',
    status: 'ACTIVE',
    permissions: ['*'],
    expiresAt: null,
    revision: 1,
    ...overrides.key,
  };
  const merchantRecord: MerchantRecord = {
    merchantId: keyRecord.merchantId,
    name: 'Test Merchant',
    status: 'ACTIVE',
    goLive: true,
    ipAllowlist: null,
    originAllowlist: null,
    revision: 1,
    ...overrides.merchant,
  };
  return {
    'mg:meta': { version: 1, generation: '01TEST', projectedAt: '2026-01-01T00:00:00.000Z' },
    [`mg:key:${lookupIdOf(key, pepper)}`]: keyRecord,
    [`mg:merchant:${merchantRecord.merchantId}`]: merchantRecord,
  };
}

/** A gateway under test, and its logs. */
export interface GatewayUnderTest extends RunningGateway {
  readonly https: number;
  readonly http: number;
  readonly management: number;
  /** The certificate that clients trust. */
  readonly ca: string;
  readonly lines: Record<string, unknown>[];
  readonly internalErrors: unknown[];
  readonly certificateChanges: CertificateChange[];
  /** The upstream of each unsolicited response. */
  readonly unsolicited: string[];
  readonly certFile: string;
  readonly keyFile: string;
}

export interface GatewaySetup {
  readonly config?: DeepPartial<Config>;
  readonly records?: StoredRecords;
  readonly keyStore?: KeyStore;
  /** Addresses of Tor exits, or an implementation of the list. */
  readonly torExits?: readonly string[] | TorExits;
  readonly geoIp?: GeoIp;
  readonly sharedRate?: SharedRate;
  readonly upstreamUrl?: string;
  readonly pepper?: Pepper;
  readonly identity?: CallerIdentity;
  /** The public keys of a gateway without an identity. */
  readonly publishedKeys?: PublishedKeys;
  /** The OpenAPI description that the gateway serves. */
  readonly publicApi?: string;
  readonly accessLog?: LineSink;
  /** The system clock if missing. */
  readonly clock?: Clock;
  readonly logSecret?: Buffer;
  readonly traces?: TraceExport;
  readonly usage?: UsagePort;
  /** Called at the end of the warm-up; without this callback there is no warm-up. */
  readonly onWarm?: WarmUpEnd;
}

const selfSigned = await createSelfSigned(new Date());

/** Starts the whole gateway on free ports of the loopback address, with real TLS, and drains it after the test. */
export async function startTestGateway(t: Teardown, setup: GatewaySetup = {}): Promise<GatewayUnderTest> {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-test-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const certFile = path.join(directory, 'cert.pem');
  const keyFile = path.join(directory, 'key.pem');
  await writeFile(certFile, selfSigned.cert);
  await writeFile(keyFile, selfSigned.key);

  const address = { host: '127.0.0.1', port: 0 };
  const url = setup.upstreamUrl ?? 'http://127.0.0.1:9';
  const base = loadConfig({
    presets: {
      listen: { https: { ...address, certFile, keyFile }, http: address, management: address },
      upstreams: { transactions: { url }, payouts: { url }, customers: { url } },
      // A long event loop delay is no overload here, because other tests can keep the machine busy. The handshake burst
      // is high, because all test clients share one address.
      limits: { drainTimeoutSeconds: 1, eventLoopDelayMilliseconds: 0, handshakeBurst: 1_000_000 },
    },
    text: JSON.stringify(setup.config ?? {}),
  });
  const lines: Record<string, unknown>[] = [];
  const internalErrors: unknown[] = [];
  const certificateChanges: CertificateChange[] = [];
  const unsolicited: string[] = [];
  const ports: GatewayPorts = {
    keyStore: setup.keyStore ?? new RecordKeyStore(new MemoryRecords(setup.records ?? recordsOf(liveKey))),
    recordCache: () => null,
    torExits: torExitsOf(setup.torExits ?? []),
    geoIp: setup.geoIp ?? null,
    sharedRate: setup.sharedRate ?? null,
    pepper: setup.pepper ?? null,
    identity: setup.identity ?? null,
    publishedKeys: setup.publishedKeys ?? null,
    publicApi: setup.publicApi ?? '{}',
    clock: setup.clock ?? { now: () => Date.now() },
    accessLog: setup.accessLog ?? {
      write: (line) => lines.push(JSON.parse(line) as Record<string, unknown>),
      problem: () => null,
      lost: () => 0,
      foreignBytes: () => 0,
      heldBytes: () => 0,
      close: () => Promise.resolve(),
    },
    traces: setup.traces ?? null,
    usage: setup.usage ?? null,
    logSecret: setup.logSecret === undefined ? null : logSecretOf(setup.logSecret),
    onInternalError: (error) => internalErrors.push(error),
    onCertificateChange: (change) => certificateChanges.push(change),
    onOverload: () => undefined,
    onUnsolicitedBytes: (upstream) => unsolicited.push(upstream),
  };
  const gateway = await startGateway(base, ports, setup.onWarm);
  let drained: Promise<void> | null = null;
  // Without a drain delay: in almost every test no client is about to send another request.
  const drain = (delayed: Promise<unknown> = Promise.resolve()): Promise<void> => (drained ??= gateway.drain(delayed));
  t.teardown(() => drain());
  const { addresses } = gateway;
  return {
    ...gateway,
    drain,
    https: addresses.https?.port ?? 0,
    http: addresses.http?.port ?? 0,
    management: addresses.management?.port ?? 0,
    ca: selfSigned.cert,
    lines,
    internalErrors,
    certificateChanges,
    unsolicited,
    certFile,
    keyFile,
  };
}

function torExitsOf(exits: readonly string[] | TorExits): TorExits {
  if ('has' in exits) return exits;
  return new TorExitList(
    exits.map((text) => {
      const exit = parseIpAddress(text);
      if (exit === null) throw new Error(`${text} is no address`);
      return exit;
    }),
  );
}

/** A response as received over the wire. */
export interface RawResponse {
  readonly status: number;
  /** Header names in lower case, in received order. */
  readonly headers: readonly (readonly [string, string])[];
  readonly body: string;
  header(name: string): string | undefined;
}

/** Opens a connection to the gateway: over TLS if `ca` is given, and over plain TCP if it is null. */
export function connect(port: number, ca: string | null, host = '127.0.0.1'): Socket {
  return ca === null
    ? net.connect(port, host)
    : tls.connect({ port, host, ca, servername: 'localhost', ALPNProtocols: ['http/1.1'] });
}

/**
 * Writes bytes unchanged. Resolves with all received bytes when the peer ends the connection or `until` returns true.
 */
export function exchangeBytes(
  socket: Socket,
  bytes: string | Buffer,
  until: (received: string) => boolean = () => false,
): Promise<string> {
  return new Promise((resolve, reject) => {
    let received = '';
    const done = (): void => {
      socket.destroy();
      resolve(received);
    };
    socket.setEncoding('latin1');
    socket.on('data', (chunk: string) => {
      received += chunk;
      // Two event-loop turns later the gateway, which runs in this process, has seen the end of its write.
      if (until(received)) setImmediate(() => setImmediate(done));
    });
    socket.on('end', done);
    socket.on('close', done);
    socket.on('error', (error) => {
      if (received === '') reject(error);
      else done();
    });
    socket.write(bytes, 'latin1');
  });
}

/** Parses the first response in the received bytes. */
export function parseResponse(received: string): RawResponse {
  const end = received.indexOf('\r\n\r\n');
  const [statusLine = '', ...lines] = received.slice(0, end).split('\r\n');
  const headers = lines.map((line): readonly [string, string] => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  });
  return {
    status: Number(statusLine.split(' ')[1]),
    headers,
    body: received.slice(end + 4),
    header: (name) => headers.find(([candidate]) => candidate === name)?.[1],
  };
}

/** A test request; a header list preserves order, case and repetition. */
export interface Ask {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: readonly (readonly [string, string])[];
  readonly body?: string;
  readonly host?: string | null;
}

/** Serializes a request, with `Connection: close` so that the response ends with the connection. */
export function requestBytes(ask: Ask): string {
  const { method = 'GET', path: target = '/v1/transactions', headers = [], body = '', host = 'localhost' } = ask;
  const lines = [
    ...(host === null ? [] : [`Host: ${host}`]),
    ...headers.map(([name, value]) => `${name}: ${value}`),
    ...(body === '' ? [] : [`Content-Length: ${Buffer.byteLength(body, 'latin1')}`]),
    'Connection: close',
  ];
  return `${method} ${target} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${body}`;
}

/** Sends a request over TLS on a new connection. */
export async function ask(gateway: Pick<GatewayUnderTest, 'https' | 'ca'>, what: Ask): Promise<RawResponse> {
  return parseResponse(await exchangeBytes(connect(gateway.https, gateway.ca), requestBytes(what)));
}
