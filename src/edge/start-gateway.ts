import type { AddressInfo } from 'node:net';
import { setImmediate, setTimeout as wait } from 'node:timers/promises';
import { planMemory } from '../config/memory-plan.js';
import type { Config } from '../config/schema.js';
import type { Pepper } from '../gateway/api-key.js';
import { ExposedKeys } from '../gateway/exposed-keys.js';
import type { GeoIp, SharedRate, TorExits, TraceExport } from '../gateway/ports.js';
import type { KeyStore } from '../gateway/key-store.js';
import type { RecordStats } from '../gateway/record-key-store.js';
import { compileIpRanges } from '../policy/ip-ranges.js';
import type { LogSecret } from '../telemetry/chain.js';
import { KeyFingerprints } from '../telemetry/key-fingerprint.js';
import { containsKey } from '../telemetry/mask-keys.js';
import type { LineSink } from '../telemetry/line-sink.js';
import type { Build } from '../telemetry/process-metrics.js';
import { MerchantCounts } from '../telemetry/request-metrics.js';
import { createLimiters } from './brakes.js';
import { drainDelay } from './connections/connections.js';
import { createManagement, type Health, type PublishedKeys } from './observe/management.js';
import { openMetrics, showExposedKeys, showLoad, showTls, showUsage } from './observe/open-metrics.js';
import { Readiness } from './observe/readiness.js';
import { RequestLog } from './observe/request-log.js';
import { type UsagePort, UsageSender } from './observe/usage-sender.js';
import { BodyBuffers } from './proxy/body-buffers.js';
import { createRouteTable } from './request/routes.js';
import { listen, type ListenAddress } from './server/listen.js';
import { createListener, type Listener, type ListenerOptions } from './server/listener.js';
import { openTls, type OpenTls } from './tls/open-tls.js';
import type { CertificateChange } from '../tls/tls-reload.js';
import { WarmUp, type WarmUpEnd } from './warm-up.js';
import { readOperatorFile } from '../config/operator-file.js';
import { Upstream } from './proxy/upstream.js';

/** Dependencies of the gateway other than its configuration. */
export interface GatewayPorts extends Pick<ListenerOptions, 'identity' | 'publicApi' | 'clock'> {
  readonly keyStore: KeyStore;
  /** Returns the metrics of the cache of key and merchant records; null without a cache. */
  readonly recordCache: () => RecordStats | null;
  readonly torExits: TorExits;
  /** Look-ups in the GeoIP databases; null without databases. */
  readonly geoIp: GeoIp | null;
  /**
   * The rate limiter that counts requests across all gateways; null if each process counts alone or no limit exists.
   */
  readonly sharedRate: SharedRate | null;
  readonly pepper: Pepper | null;
  /** Public keys that upstreams can read before the gateway signs with them; null or omitted if there are none. */
  readonly publishedKeys?: PublishedKeys | null;
  readonly accessLog: LineSink;
  /** The access log's secret, used for key fingerprints; null if keys have no fingerprints. */
  readonly logSecret: LogSecret;
  /** Checks that look for mistakes in the set-up of Redis, and warn of them; null or omitted without such checks. */
  readonly selfCheck?: { warnings(): readonly string[]; close(): Promise<void> } | null;
  /** How to send usage counts to the registry; null or omitted if the registry gets no counts. */
  readonly usage?: UsagePort | null;
  /** The running build; omitted if unknown. */
  readonly build?: Build | undefined;
  /** The exporter of traces; null if traces are not exported. */
  readonly traces: TraceExport | null;
  /** Called for an unexpected failure, with the id of its request. */
  readonly onInternalError: (error: unknown, requestId: string) => void;
  /** Called when changed certificates are in use, when a change is rejected, and when a rejected change was undone. */
  readonly onCertificateChange: (change: CertificateChange) => void;
  /**
   * Called once for each certificate in use that expires soon, has expired or is not valid yet. `isOver` means that
   * clients already reject the certificate.
   */
  readonly onCertificateWarning?: (warning: string, isOver: boolean) => void;
  /** Called with the problem when the process is overloaded, and with null when it has recovered. */
  readonly onOverload: (problem: string | null) => void;
  /** Called with the name of an upstream that sent bytes without a pending request. */
  readonly onUnsolicitedBytes: (upstream: string) => void;
}

/** A running gateway. */
export interface RunningGateway {
  /** The address of each listener; null for a listener that is not configured. */
  readonly addresses: Readonly<Record<'https' | 'http' | 'management', AddressInfo | null>>;
  /** Returns the health that the management listener serves. */
  health(): Health;
  /** Returns the metrics as objects, for aggregation over several processes. */
  metricObjects(): Promise<readonly object[]>;
  /** Checks immediately for changed certificates and ticket keys, in addition to the periodic checks. */
  reloadTls(): Promise<void>;
  /**
   * Shuts the gateway down. During the drain delay, it reports not ready and closes each connection after its next
   * response. Then it rejects new requests, waits up to the drain timeout for those in flight, and closes everything.
   * @param delayed resolves at the end of the drain delay; if omitted, the configured delay applies
   */
  drain(delayed?: Promise<unknown>): Promise<void>;
}

/** How long to wait after the drain for upstream requests without a client, and for usage counts, logs and traces. */
const graceMilliseconds = 2_000;

/**
 * Starts the gateway's listeners. Closes the dependencies in `ports` if the start fails. The gateway is not ready
 * before the end of its warm-up, in which it sends requests to itself, so that V8 compiles the code.
 * @param onWarm called at the end of the warm-up; null to skip the warm-up
 * @throws OperatorError for an unusable certificate, address or port
 */
export async function startGateway(
  config: Config,
  ports: GatewayPorts,
  onWarm: WarmUpEnd | null = null,
): Promise<RunningGateway> {
  const buffers = new BodyBuffers(planMemory(config).bufferedBodyBytes);
  const upstreams = await openUpstreams(config, buffers, ports.onUnsolicitedBytes).catch(async (error: unknown) => {
    await closePorts(ports);
    throw error;
  });
  const readiness = new Readiness(ports, config.accessLog.onFailure);
  const warmUp = onWarm && new WarmUp({ ...config, ...ports }, onWarm);
  readiness.warmUp = warmUp;
  const metrics = openMetrics(config.environment, readiness, ports);
  const exposedKeys = new ExposedKeys(ports.keyStore, ports.clock);
  showExposedKeys(metrics, exposedKeys);
  const trustedProxies = compileIpRanges(config.trustedProxies);
  const sender = ports.usage ? new UsageSender({ ...config, ...ports, ...ports.usage }) : null;
  showUsage(metrics, sender);
  const merchants = config.usage.merchantMetrics > 0 ? new MerchantCounts(config.usage.merchantMetrics) : null;
  if (merchants !== null) metrics.showMerchants(merchants);
  const parts = { ...ports, usage: sender?.counter ?? null };
  const { throttle, sharedLines, merchantRate, loopWatch } = createLimiters(config, parts, trustedProxies, metrics);
  const requestLog = new RequestLog({
    ...parts,
    environment: config.environment,
    sink: ports.accessLog,
    metrics,
    exposedKeys,
    merchants,
    sharedLines,
  });
  const stopWatching = loopWatch.start(ports.onOverload);
  const fingerprints = new KeyFingerprints(ports.logSecret);
  const createOne = (tls: OpenTls | null): Promise<Listener> =>
    createListener({
      authentication: {
        environment: config.environment,
        trustedProxies,
        torExits: ports.torExits,
        geoIp: ports.geoIp,
        clock: ports.clock,
        keyStore: ports.keyStore,
        pepper: ports.pepper,
        routes: createRouteTable(config),
        headLimits: config.limits,
        maxBodyBytes: config.limits.bodyBytes,
        throttle,
        merchantRate,
        overload: loopWatch,
        fingerprints,
        containsKey,
        traces: ports.traces,
        requiredLog: readiness.requiredLog,
      },
      upstreams,
      publicApi: ports.publicApi,
      identity: ports.identity,
      limits: config.limits,
      clock: ports.clock,
      tls: tls?.endpoint ?? null,
      ownHeaders: tls?.ownHeaders ?? {},
      proxyProtocolFrom: config.proxyProtocol ? trustedProxies : null,
      requestLog,
      onRefusedConnection: (why) => {
        metrics.countRefusedConnection(why);
      },
      onInternalError: (error, exchange) => {
        ports.onInternalError(error, exchange.found.id);
      },
    });

  const { https, http, management } = config.listen;
  const listeners = new Map<string, Listener>();
  showLoad(metrics, listeners, upstreams, buffers);
  const open = async (listener: Listener, name: string, at: ListenAddress): Promise<AddressInfo> => {
    listeners.set(name, listener);
    return listen(listener.app, name, at);
  };
  const health = (): Health => ({
    problems: readiness.problems(),
    warnings: readiness.warnings(),
    details: { torExits: ports.torExits.status(), records: ports.recordCache()?.preload },
  });
  const healthApp = createManagement({ health, metrics, keys: ports.identity ?? ports.publishedKeys ?? null });
  const drain = async (delayed?: Promise<unknown>): Promise<void> => {
    readiness.draining = true;
    const all = [...listeners.values()].map(({ connections }) => connections);
    for (const connections of all) connections.endWithNextResponse();
    await warmUp?.stop();
    await (delayed ?? wait(drainDelay(config.limits.drainDelaySeconds, all)));
    await readiness.tls?.reload.stop();
    await closeAll([...listeners.values()], config.limits.drainTimeoutSeconds);
    stopWatching();
    await healthApp.close(); // after the other listeners, so that health checks work during the drain
    await Promise.all([...upstreams.values()].map((upstream) => upstream.close(graceMilliseconds)));
    await setImmediate(); // in this turn, the last responses close, and the request log records them
    await requestLog.settled();
    await sender?.close(graceMilliseconds);
    await closePorts(ports);
  };
  try {
    if (https !== null) {
      const tls = await openTls(
        https,
        config.limits.headersTimeoutSeconds,
        ports.clock,
        (change) => {
          if (change.result !== 'restored') metrics.countTlsReload(change.result);
          ports.onCertificateChange(change);
        },
        ports.onCertificateWarning,
      );
      readiness.tls = tls;
      showTls(metrics, tls);
    }
    const addresses = {
      management: management && (await listen(healthApp, 'management', management)),
      https: https && (await open(await createOne(readiness.tls), 'https', https)),
      http: http && (await open(await createOne(null), 'http', http)),
    };
    warmUp?.start();
    sender?.start();
    return {
      addresses,
      health,
      metricObjects: () => metrics.metricObjects(),
      reloadTls: async () => {
        await readiness.tls?.reload.check();
      },
      drain,
    };
  } catch (error) {
    await drain(Promise.resolve());
    throw error;
  }
}

/** Closes the dependencies. Called when no request uses them any more. Closing also flushes logs and traces. */
async function closePorts(ports: GatewayPorts): Promise<void> {
  const { geoIp, accessLog, traces, torExits, sharedRate, keyStore, selfCheck, usage } = ports;
  geoIp?.close();
  const written = [accessLog.close(graceMilliseconds), traces?.close(graceMilliseconds)];
  // Close all in parallel. Otherwise the log would be closed only after the timeouts of unreachable dependencies.
  const others = [torExits, sharedRate, keyStore, selfCheck, usage?.channel];
  await Promise.all([...written, ...others.map((port) => port?.close())]);
}

/** Closes the listeners. Connections that are open after the timeout are closed forcibly. */
async function closeAll(listeners: readonly Listener[], timeoutSeconds: number): Promise<void> {
  const cutOff = setTimeout(() => {
    for (const { connections } of listeners) connections.cutOff();
  }, timeoutSeconds * 1000);
  await Promise.all(listeners.map(({ app }) => app.close()));
  clearTimeout(cutOff);
}

const maxPemBytes = 1024 * 1024;
/**
 * How long an upstream connection rests (is not reused) after a response, in milliseconds. A stray (duplicate or late)
 * response most likely arrives during the rest, and closes the connection. Without the rest, the next request would get
 * the stray response, and each later request would get the response to the request before it.
 * Under load, the rest is shorter, about as long as a response takes, so one request can get a stray response. But the
 * request's own response then arrives during the next rest, and closes the connection.
 */
const restMilliseconds = 100;

/**
 * Creates the configured upstreams, by name. They connect on their first request.
 * @param buffers the memory for bodies that have not arrived completely, shared by all upstreams
 * @param onUnsolicited called with the name of an upstream that sent bytes without a pending request
 * @throws OperatorError for an unreadable CA certificate
 */
async function openUpstreams(
  config: Config,
  buffers: BodyBuffers,
  onUnsolicited: (upstream: string) => void,
): Promise<ReadonlyMap<string, Upstream>> {
  const upstreams = new Map<string, Upstream>();
  const { bodyBytes: maxBodyBytes, minBodyBytesPerSecond } = config.limits;
  for (const [name, { caFile, ...options }] of Object.entries(config.upstreams)) {
    const ca = caFile === null ? null : await readOperatorFile(caFile, 'The CA certificate', maxPemBytes);
    const upstream = new Upstream({
      ...options,
      ...{ name, ca, maxBodyBytes, minBodyBytesPerSecond, buffers, restMilliseconds },
      onUnsolicited: () => {
        onUnsolicited(name);
      },
    });
    upstreams.set(name, upstream);
  }
  return upstreams;
}
