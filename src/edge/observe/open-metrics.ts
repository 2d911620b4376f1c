import type { ExposedKeys } from '../../gateway/exposed-keys.js';
import { type TorExits, type TraceExport } from '../../gateway/ports.js';
import {
  type CachePartStats,
  type PreloadStats,
  preloadStates,
  type RecordStats,
} from '../../gateway/record-key-store.js';
import type { KeyStore } from '../../gateway/key-store.js';
import type { LineSink } from '../../telemetry/line-sink.js';
import { GatewayMetrics } from '../../telemetry/metrics.js';
import type { Build } from '../../telemetry/process-metrics.js';
import { evictions } from '../connections/connection-limiter.js';
import type { BodyBuffers } from '../proxy/body-buffers.js';
import type { Upstream } from '../proxy/upstream.js';
import { refusedConnections } from '../server/create-server.js';
import type { Listener } from '../server/listener.js';
import type { OpenTls } from '../tls/open-tls.js';
import type { Readiness } from './readiness.js';
import type { UsageSender } from './usage-sender.js';

/** Components of the gateway whose own counters become metrics. */
interface MeasuredParts {
  readonly keyStore: KeyStore;
  readonly recordCache: () => RecordStats | null;
  readonly torExits: TorExits;
  readonly accessLog: LineSink;
  readonly traces: TraceExport | null;
  readonly build?: Build | undefined;
}

/** Creates the metrics of a gateway and registers the counters of its components. */
export function openMetrics(environment: string, readiness: Readiness, parts: MeasuredParts): GatewayMetrics {
  const { keyStore, recordCache, torExits, accessLog, traces } = parts;
  const state = {
    isReady: () => readiness.problems().length === 0,
    keyStoreProblem: () => keyStore.unavailableReason(),
    accessLog,
  };
  const metrics = new GatewayMetrics(environment, state, refusedConnections, parts.build);
  metrics.watchTorExits(() => torExits.status());
  const ofCache = (of: (half: CachePartStats) => number) => (): Record<string, number> => {
    const stats = recordCache();
    return stats === null ? {} : { known: of(stats.known), unknown: of(stats.unknown) };
  };
  metrics.gaugeByWord(
    'gateway_record_cache_entries',
    'Entries in the record cache, by kind: known (records) or unknown (lookups of keys that do not exist).',
    'kind',
    ofCache(({ entries }) => entries),
  );
  metrics.counterByWord(
    'gateway_record_cache_evictions_total',
    'Entries evicted because the record cache was full, by kind: known (records) or unknown (lookups of keys that do not exist).',
    'kind',
    ofCache(({ evictions }) => evictions),
  );
  showPreload(metrics, () => recordCache()?.preload ?? null);
  metrics.counterByWord(
    'gateway_records_refused_total',
    'Rejected records, by reason. If the reason is unsealed, wrong_seal or earlier_generation, an attacker may have written the record.',
    'reason',
    () => ({ ...recordCache()?.refused }),
  );
  metrics.counterByWord(
    'gateway_trace_spans_total',
    'Spans of sampled requests, by result: exported or dropped.',
    'result',
    () => ({ ...traces?.stats() }),
  );
  return metrics;
}

/**
 * Registers the metrics of the cache preload, which reads all records from Redis into memory. They show how many of the
 * existing keys are in memory, where the gateway can check them without Redis.
 */
function showPreload(metrics: GatewayMetrics, preload: () => PreloadStats | null): void {
  metrics.gaugeByWord(
    'gateway_record_preload_state',
    'Gateway processes, by state of the record preload: loading, complete, full (the cache cannot hold all records) or refused (the Redis ACL denies the preload).',
    'state',
    () => {
      const stats = preload();
      if (stats === null) return {};
      return Object.fromEntries(preloadStates.map((state) => [state, Number(state === stats.state)]));
    },
  );
  metrics.gaugeByWord(
    'gateway_record_preload_records',
    'Records, by kind: keys (cached keys), merchants (cached merchants) or seen (keys that the latest scan of Redis found, in all environments).',
    'kind',
    () => {
      const stats = preload();
      return stats === null ? {} : { keys: stats.keys, merchants: stats.merchants, seen: stats.seen };
    },
  );
}

/** Registers the counter of keys that clients sent over plain HTTP or Tor. Third parties could have read such keys. */
export function showExposedKeys(metrics: GatewayMetrics, exposedKeys: ExposedKeys): void {
  metrics.counterByWord(
    'gateway_keys_exposed_total',
    'Rejected requests that sent an API key over plain HTTP or Tor, by code. Requests with a key that does not exist are not counted.',
    'code',
    () => exposedKeys.counts(),
  );
}

/** Registers the metrics of the certificates in use, and a metric that shows whether the files on disk are valid. */
export function showTls(metrics: GatewayMetrics, { endpoint, reload }: OpenTls): void {
  metrics.showCertificates(() => endpoint.material.certificates);
  metrics.gauge(
    'gateway_tls_files_usable',
    '1 while the files of certificates and ticket keys are valid; 0 while a file is invalid and the previous certificates and ticket keys stay in use.',
    () => Number(reload.problem === null),
    'min',
  );
}

/** Registers the metrics of the usage counts that the gateway sends to the registry. */
export function showUsage(metrics: GatewayMetrics, sender: UsageSender | null): void {
  metrics.counterByWord(
    'gateway_usage_batches_total',
    'Batches of request counts for the registry, by result: stored, or refused (the counts are lost).',
    'result',
    () => ({ ...sender?.stats }),
  );
  metrics.gauge(
    'gateway_usage_delay_seconds',
    'Age of the oldest batch of request counts that the registry has not stored yet, in seconds; 0 if it has stored all.',
    () => (sender?.delay ?? 0) / 1000,
    'max',
  );
}

/** Registers the metrics of client connections, of request bodies, and of the requests and connections to upstreams. */
export function showLoad(
  metrics: GatewayMetrics,
  listeners: ReadonlyMap<string, Listener>,
  upstreams: ReadonlyMap<string, Upstream>,
  buffers: BodyBuffers,
): void {
  showBodies(metrics, upstreams, buffers);
  metrics.gaugeByWord('gateway_connections', 'Open connections, by listener.', 'listener', () =>
    Object.fromEntries([...listeners].map(([name, { connections }]) => [name, connections.size])),
  );
  metrics.gaugeByWord(
    'gateway_connections_limit',
    'Maximum number of open connections, by listener: limits.connections, or fewer if there is not enough memory.',
    'listener',
    () => Object.fromEntries([...listeners].map(([name, { limiter }]) => [name, limiter.limit])),
  );
  metrics.gaugeByWord(
    'gateway_connections_without_key',
    'Open connections without an accepted request so far, by listener. Connections of trusted proxies do not count.',
    'listener',
    () => Object.fromEntries([...listeners].map(([name, { limiter }]) => [name, limiter.withoutKey])),
  );
  metrics.counterByWord(
    'gateway_connections_evicted_total',
    'Connections evicted to admit a new connection, by reason: without_key (no accepted request so far) or merchant_share (of a merchant with more than half of all connections).',
    'reason',
    () =>
      Object.fromEntries(
        evictions.map((reason) => [
          reason,
          [...listeners.values()].reduce((sum, { limiter }) => sum + limiter.evicted[reason], 0),
        ]),
      ),
  );
  metrics.gaugeByWord('gateway_upstream_requests_in_flight', 'Requests in flight, by upstream.', 'upstream', () =>
    Object.fromEntries([...upstreams].map(([name, { inFlight }]) => [name, inFlight])),
  );
  metrics.counterByWord(
    'gateway_upstream_requests_repeated_total',
    'Requests retried because a reused connection ended before the first byte of the response, by upstream.',
    'upstream',
    () => Object.fromEntries([...upstreams].map(([name, { repeated }]) => [name, repeated])),
  );
  metrics.gaugeByWord(
    'gateway_upstream_bound_idle_connections',
    'By upstream: idle connections that only one merchant may reuse, because they have carried a request body of that merchant.',
    'upstream',
    () => Object.fromEntries([...upstreams].map(([name, { boundIdle }]) => [name, boundIdle])),
  );
  metrics.counterByWord(
    'gateway_upstream_unsolicited_bytes_total',
    'Connections closed because the service sent bytes without a pending request, by upstream.',
    'upstream',
    () => Object.fromEntries([...upstreams].map(([name, { unsolicited }]) => [name, unsolicited])),
  );
}

/** Registers the metrics of buffered and rejected request bodies. */
function showBodies(metrics: GatewayMetrics, upstreams: ReadonlyMap<string, Upstream>, buffers: BodyBuffers): void {
  metrics.gauge(
    'gateway_buffered_body_bytes',
    'Memory of buffered request bodies that have not arrived completely, in bytes.',
    () => buffers.bytes,
  );
  metrics.counterByWord(
    'gateway_bodies_refused_total',
    'Rejected request bodies, by reason: memory (buffers exhausted) or slow (below limits.minBodyBytesPerSecond).',
    'reason',
    () => ({
      memory: buffers.refused,
      slow: [...upstreams.values()].reduce((sum, { slowBodies }) => sum + slowBodies, 0),
    }),
  );
}
