import type { AddressInfo } from 'node:net';
import { setImmediate, setTimeout as wait } from 'node:timers/promises';
import { planMemory } from '../config/memory-plan.js';
import type { Config } from '../config/schema.js';
import type { Pepper } from '../gateway/api-key.js';
import { ExposedKeys } from '../gateway/exposed-keys.js';
import type {
  CallerIdentity,
  Clock,
  GeoIp,
  KeyStore,
  RecordFigures,
  SharedRate,
  TorExits,
  TraceExport,
} from '../gateway/ports.js';
import { compileIpRanges } from '../policy/ip-ranges.js';
import type { LogSecret } from '../telemetry/chain.js';
import { KeyFingerprints } from '../telemetry/key-fingerprint.js';
import type { LineSink } from '../telemetry/line-sink.js';
import type { Build } from '../telemetry/process-metrics.js';
import { openBrakes } from './brakes.js';
import { drainDelay } from './connections/connections.js';
import { createManagement, type Health } from './observe/management.js';
import { openMetrics, showExposedKeys, showLoad, showTls } from './observe/open-metrics.js';
import { Readiness } from './observe/readiness.js';
import { RequestLog } from './observe/request-log.js';
import { BodyBuffers } from './proxy/body-buffers.js';
import { createRouteTable } from './request/routes.js';
import { listen, type ListenAddress } from './server/listen.js';
import { createListener, type Listener } from './server/listener.js';
import { openTls, type OpenTls } from './tls/open-tls.js';
import type { CertificateChange } from './tls/tls-reload.js';
import { WarmUp, type WarmUpEnd } from './warm-up.js';
import { readOperatorFile } from '../config/operator-file.js';
import { Upstream } from './proxy/upstream.js';

/** What the gateway needs besides its configuration. */
export interface GatewayPorts {
  readonly keyStore: KeyStore;
  /** What is held of the records in memory; null: nothing is. */
  readonly recordCache: () => RecordFigures | null;
  readonly torExits: TorExits;
  /** null: there are no databases about addresses. */
  readonly geoIp: GeoIp | null;
  /** Counts merchants' requests for all gateways together; null: each process counts for itself, or nothing is limited. */
  readonly sharedRate: SharedRate | null;
  readonly pepper: Pepper | null;
  /** Signs who calls for upstreams; null: no signature. */
  readonly identity: CallerIdentity | null;
  readonly clock: Clock;
  readonly accessLog: LineSink;
  /** The access log's secret, for the fingerprints of keys; null: none. */
  readonly logSecret: LogSecret;
  /** What is wrong outside, as it was found by looking for it; null or left out: nothing is looked for. */
  readonly selfCheck?: { warnings(): readonly string[]; close(): Promise<void> } | null;
  /** What runs; left out: nobody says. */
  readonly build?: Build | undefined;
  /** Where traces are kept; null: nowhere. */
  readonly traces: TraceExport | null;
  /** Told of a failure that was not foreseen, with the id of its request. */
  readonly onInternalError: (error: unknown, requestId: string) => void;
  /** Told when certificates were replaced, and once of new ones that cannot be used. */
  readonly onCertificateChange: (change: CertificateChange) => void;
  /** Told once of each certificate in use that ends soon, is over or has not begun. */
  readonly onCertificateWarning?: (warning: string, isOver: boolean) => void;
  /** Told when the process can no longer keep up, with what is wrong, and, with null, when it can again. */
  readonly onOverload: (problem: string | null) => void;
  /** Called with the name of an upstream that sent bytes which no request had asked for. */
  readonly onUnsolicitedBytes: (upstream: string) => void;
}

/** A gateway that takes requests. */
export interface RunningGateway {
  /** Where each listener is; null where the configuration has none. */
  readonly addresses: Readonly<Record<'https' | 'http' | 'management', AddressInfo | null>>;
  /** How it is, as its management listener tells. */
  health(): Health;
  /** Its metrics, as those of several processes are aggregated. */
  figures(): Promise<readonly object[]>;
  /** Looks at once whether certificates or ticket keys have changed; otherwise that happens by itself. */
  reloadTls(): Promise<void>;
  /**
   * Says that it is not ready, and for the drain delay ends connections with their answers; then stops taking requests,
   * lets those in flight end within the drain timeout, and closes everything.
   * @param delayed is over when the delay is
   */
  drain(delayed?: Promise<unknown>): Promise<void>;
}

/** What is given to calls that go on without their caller, and to lines that wait to be written, after the drain. */
const graceMilliseconds = 2_000;

/**
 * Starts the gateway's listeners. Where that fails, the ports are closed.
 * @param onWarm told when the gateway has warmed up, until when it is not ready; null: it does not warm up
 * @throws OperatorError for a certificate that cannot be used or a port that is taken
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
  const { throttle, sharedLines, merchantRate, loopWatch } = openBrakes(config, ports, trustedProxies, metrics);
  const requestLog = new RequestLog({
    ...ports,
    environment: config.environment,
    sink: ports.accessLog,
    metrics,
    exposedKeys,
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
        overload: () => loopWatch.problem(),
        fingerprints,
        traces: ports.traces,
        accessLogProblem: readiness.refusingLogProblem,
      },
      upstreams,
      identity: ports.identity,
      limits: config.limits,
      clock: ports.clock,
      tls: tls?.endpoint ?? null,
      ownHeaders: tls?.ownHeaders ?? {},
      proxyProtocolFrom: config.proxyProtocol ? trustedProxies : null,
      onExchange: (exchange) => {
        requestLog.ended(exchange);
      },
      onRefused: (refused) => {
        requestLog.refused(refused);
      },
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
  const healthApp = createManagement({ health, metrics, identity: ports.identity });
  const drain = async (delayed?: Promise<unknown>): Promise<void> => {
    readiness.draining = true;
    const all = [...listeners.values()].map(({ connections }) => connections);
    for (const connections of all) connections.endWithNextAnswer();
    await warmUp?.stop();
    await (delayed ?? wait(drainDelay(config.limits.drainDelaySeconds, all)));
    await readiness.tls?.reload.stop();
    await closeAll([...listeners.values()], config.limits.drainTimeoutSeconds);
    stopWatching();
    await healthApp.close(); // last, so that it can be asked all the while
    await Promise.all([...upstreams.values()].map((upstream) => upstream.close(graceMilliseconds)));
    await setImmediate(); // the last responses close in the same turn as their server
    await requestLog.settled();
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
    return {
      addresses,
      health,
      figures: () => metrics.figures(),
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

/** Closes what the gateway asks, when nothing is asked any more, and writes what is still to be written. */
async function closePorts({
  torExits,
  geoIp,
  sharedRate,
  keyStore,
  accessLog,
  traces,
  selfCheck,
}: GatewayPorts): Promise<void> {
  geoIp?.close();
  const written = [accessLog.close(graceMilliseconds), traces?.close(graceMilliseconds)];
  // Together: where nothing answers each takes its whole time, and the log would come last.
  await Promise.all([...written, torExits.close(), sharedRate?.close(), keyStore.close(), selfCheck?.close()]);
}

/** Keep-alive connections end with their next answer; what has not ended by the timeout is cut off. */
async function closeAll(listeners: readonly Listener[], timeoutSeconds: number): Promise<void> {
  const cutOff = setTimeout(() => {
    for (const { connections } of listeners) connections.cutOff();
  }, timeoutSeconds * 1000);
  await Promise.all(listeners.map(({ app }) => app.close()));
  clearTimeout(cutOff);
}

const maxPemBytes = 1024 * 1024;
/**
 * Longer than services take for most responses: a response that is sent twice, or late, comes while its connection rests,
 * and closes it. Without the rest, one stray response shifted all that followed it. Under load a connection rests for as long
 * as a response takes: then a stray one meets one request, whose own response comes during the rest.
 */
const restMilliseconds = 100;

/**
 * Opens the upstreams of a configuration, by their names; they connect when a request is sent.
 * @param buffers where bodies wait until they have arrived, for all of them
 * @param onUnsolicited called with the name of an upstream that sent bytes which no request had asked for
 * @throws OperatorError for a CA certificate that cannot be read
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
