import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { generateApiKey, lookupIdOf, type Pepper } from '../gateway/api-key.js';
import { ExposedKeys } from '../gateway/exposed-keys.js';
import type { Clock } from '../gateway/ports.js';
import type { KeyLookup } from '../gateway/key-store.js';
import { createServer } from '../node/http.js';
import type { Credential } from '../policy/facts.js';
import { compileIpRanges } from '../policy/ip-ranges.js';
import type { Environment } from '../policy/key-format.js';
import { compilePermissions } from '../policy/permissions.js';
import { Chain, type LogSecret } from '../telemetry/chain.js';
import { KeyFingerprints } from '../telemetry/key-fingerprint.js';
import { containsKey } from '../telemetry/mask-keys.js';
import { Pool, request } from 'undici';
import { RequestLog } from './observe/request-log.js';
import { BodyBuffers } from './proxy/body-buffers.js';
import { createRouteTable } from './request/routes.js';
import { Upstream } from './proxy/upstream.js';
import { createListener, type Listener, type ListenerOptions } from './server/listener.js';

/** Settings of the gateway that the warm-up requests use. */
export interface WarmUpOptions {
  readonly environment: Environment;
  readonly limits: ListenerOptions['limits'] & { readonly bodyBytes: number; readonly targetBytes: number };
  readonly pepper: Pepper | null;
  readonly logSecret: LogSecret;
  readonly clock: Clock;
}

/** Called after a warm-up with its number of requests. The failure is null after a success, a timeout or a stop. */
export type WarmUpEnd = (requests: number, failure: unknown) => void;

/**
 * The address of the warm-up's own listener. Worker processes share the gateway's ports. On this address, each process
 * has a port of its own, so its warm-up requests reach the process itself and no other worker.
 */
const host = '127.0.0.1';
const name = 'warm-up';
/** After this number of requests, V8 has compiled the code, and further requests are no faster. */
const mostRequests = 600;
const atATime = 4;
/** Maximum duration. On a busy machine, early readiness matters more than the last warm-up requests. */
const longestMilliseconds = 1_500;
const responseBody = JSON.stringify({ success: true, message: 'OK', data: [] });
const payout = JSON.stringify({ amount: 100, currency: 'NGN', recipient: '0'.repeat(160) });

/**
 * Sends requests to the gateway itself before it is ready. Node compiles only code that runs often, so the first
 * requests of a process would otherwise take many times as long as later ones. Warm-up requests take the real code
 * path, but use a separate listener, key and upstream. They trigger no key look-up, log line, metric or traffic to a
 * real upstream.
 */
export class WarmUp {
  readonly #options: WarmUpOptions;
  readonly #onEnd: WarmUpEnd;
  readonly #stopping = new AbortController();
  #requests = 0;
  #running: Promise<void> | null = null;
  /** Whether the warm-up is complete, failed or stopped. */
  over = false;

  constructor(options: WarmUpOptions, onEnd: WarmUpEnd) {
    this.#options = options;
    this.#onEnd = onEnd;
  }

  /** Starts the warm-up without waiting for its end. */
  start(): void {
    const signal = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(longestMilliseconds)]);
    let failure: unknown = null;
    this.#running = this.#run(signal)
      .catch((error: unknown) => {
        if (!signal.aborted) failure = error;
      })
      .finally(() => {
        this.over = true;
        this.#onEnd(this.#requests, failure);
      });
  }

  /** Stops the warm-up and waits for its end. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(signal: AbortSignal): Promise<void> {
    const backend = createServer((request, response) => {
      request.resume();
      response.setHeader('content-type', 'application/json');
      response.end(responseBody);
    });
    const closers: (() => Promise<unknown>)[] = [];
    try {
      closers.push(() => closeServer(backend));
      const { port } = await listen(backend);
      const upstream = upstreamAt(`http://${host}:${port}`, this.#options.limits.bodyBytes);
      closers.push(() => upstream.close(0));
      const key = generateApiKey(this.#options.environment);
      const { app } = await createOwnListener(this.#options, key, upstream);
      closers.push(() => app.close());
      const origin = await app.listen({ host, port: 0, exclusive: true });
      const caller = new Pool(origin, { connections: atATime });
      closers.push(() => caller.destroy());
      await Promise.all(
        Array.from({ length: atATime }, () => this.#ask(caller, new URL(`/${name}?page=1`, origin), key, signal)),
      );
    } finally {
      for (const close of closers.toReversed()) await close();
    }
  }

  /** Sends requests one by one, until `signal` aborts or all calls of this method have together sent `mostRequests`. */
  async #ask(caller: Pool, url: URL, key: string, signal: AbortSignal): Promise<void> {
    const unknown = generateApiKey(this.#options.environment);
    const headers = { 'x-forwarded-proto': 'https', 'x-forwarded-for': '192.0.2.1', 'user-agent': name };
    while (this.#requests < mostRequests && !signal.aborted) {
      this.#requests += 1;
      const isPost = this.#requests % 3 === 0 && payout.length <= this.#options.limits.bodyBytes;
      const isKnown = this.#requests % 8 !== 0;
      const { statusCode, body } = await request(url, {
        dispatcher: caller,
        method: isPost ? 'POST' : 'GET',
        headers: { ...headers, 'x-api-key': isKnown ? key : unknown },
        body: isPost ? payout : null,
        signal,
      });
      await body.dump();
      const expected = isKnown ? 200 : 401;
      if (statusCode !== expected) throw new Error(`a warm-up request got status ${statusCode} instead of ${expected}`);
    }
  }
}

/** Creates a listener that accepts one key and neither logs nor counts its requests. */
function createOwnListener(options: WarmUpOptions, key: string, upstream: Upstream): Promise<Listener> {
  const { environment, limits, pepper, logSecret, clock } = options;
  const known = lookupIdOf(key, pepper);
  const keyStore = {
    find: (lookupId: string) =>
      Promise.resolve<KeyLookup>({
        credential: lookupId === known ? credentialFor(environment) : null,
        ...{ source: 'cache', ageMilliseconds: 0 },
      }),
  };
  const chain = new Chain(logSecret, environment);
  const requestLog = new RequestLog({
    ...{ environment, clock, traces: null, usage: null, merchants: null, sharedLines: null },
    sink: { write: (line) => chain.seal(line) },
    metrics: { requests: { add: () => undefined }, observeDurations: () => undefined },
    exposedKeys: new ExposedKeys(keyStore, clock),
    onInternalError: () => undefined,
  });
  return createListener({
    authentication: {
      ...{ environment, keyStore, pepper, clock, geoIp: null, traces: null, throttle: null, merchantRate: null },
      trustedProxies: compileIpRanges([host]),
      torExits: { has: () => false, digest: null },
      routes: createRouteTable({ basePath: '', routes: [{ path: `/${name}`, upstream: name, resource: name }] }),
      headLimits: limits,
      maxBodyBytes: limits.bodyBytes,
      fingerprints: new KeyFingerprints(logSecret),
      containsKey,
      requiredLog: { problem: () => null },
      overload: { problem: () => null },
    },
    upstreams: new Map([[name, upstream]]),
    ...{ publicApi: '', identity: null, limits, clock, tls: null, proxyProtocolFrom: null },
    requestLog,
    ownHeaders: {},
    onRefusedConnection: () => undefined,
    onInternalError: () => undefined,
  });
}

function credentialFor(environment: Environment): Credential {
  return {
    ...{
      keyId: name,
      keyLabel: null,
      graceEndsAt: null,
      merchantId: name,
      merchantName: name,
      environment,
      keyStatus: 'ACTIVE',
      merchantStatus: 'ACTIVE',
      goLive: true,
    },
    ...{ expiresAt: null, permissions: compilePermissions(['*']), ipAllowlist: null, originAllowlist: null },
    ...{ keyStatusChangedAt: null, merchantStatusChangedAt: null, keyRevision: 1, merchantRevision: 1 },
  };
}

function upstreamAt(url: string, maxBodyBytes: number): Upstream {
  return new Upstream({
    ...{ name, url, timeoutSeconds: 1, maxInFlight: atATime, ca: null, maxBodyBytes },
    ...{ minBodyBytesPerSecond: 1, buffers: new BodyBuffers(maxBodyBytes) },
    ...{ boundIdle: atATime, readsBodies: true, restMilliseconds: 0, onUnsolicited: () => undefined },
  });
}

async function listen(server: Server): Promise<AddressInfo> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen({ host, port: 0, exclusive: true }, resolve);
  });
  return server.address() as AddressInfo;
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => {
      resolve();
    });
    server.closeAllConnections();
  });
}
