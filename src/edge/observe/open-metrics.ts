import type { ExposedKeys } from '../../gateway/exposed-keys.js';
import {
  type HeldFigures,
  type KeyStore,
  type PreloadFigures,
  preloadStates,
  type RecordFigures,
  type TorExits,
  type TraceExport,
} from '../../gateway/ports.js';
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

/** The parts of a gateway that count by themselves. */
interface MeasuredParts {
  readonly keyStore: KeyStore;
  readonly recordCache: () => RecordFigures | null;
  readonly torExits: TorExits;
  readonly accessLog: LineSink;
  readonly traces: TraceExport | null;
  readonly build?: Build | undefined;
}

/** Opens the metrics of a gateway, with what its parts count. */
export function openMetrics(environment: string, readiness: Readiness, parts: MeasuredParts): GatewayMetrics {
  const { keyStore, recordCache, torExits, accessLog, traces } = parts;
  const state = {
    isReady: () => readiness.problems().length === 0,
    keyStoreProblem: () => keyStore.unavailableReason(),
    accessLog,
  };
  const metrics = new GatewayMetrics(environment, state, refusedConnections, parts.build);
  metrics.watchTorExits(() => torExits.status());
  const ofCache = (of: (half: HeldFigures) => number) => (): Record<string, number> => {
    const figures = recordCache();
    return figures === null ? {} : { known: of(figures.known), unknown: of(figures.unknown) };
  };
  metrics.gaugeByWord(
    'gateway_record_cache_entries',
    'Records held in memory, and names held as unknown.',
    'kind',
    ofCache(({ entries }) => entries),
  );
  metrics.counterByWord(
    'gateway_record_cache_evictions_total',
    'Records, and names held as unknown, that had to go because there was no room.',
    'kind',
    ofCache(({ evictions }) => evictions),
  );
  showPreload(metrics, () => recordCache()?.preload ?? null);
  metrics.counterByWord(
    'gateway_records_refused_total',
    'Records that could not be used, by what was wrong; unsealed, wrong_seal, earlier_generation: somebody else may have written them.',
    'reason',
    () => ({ ...recordCache()?.refused }),
  );
  metrics.counterByWord(
    'gateway_trace_spans_total',
    'Spans of requests that were chosen for a trace: exported, or dropped.',
    'result',
    () => ({ ...traces?.figures() }),
  );
  return metrics;
}

/** Shows how many of the keys that there are could be decided without Redis. */
function showPreload(metrics: GatewayMetrics, preload: () => PreloadFigures | null): void {
  metrics.gaugeByWord(
    'gateway_record_preload_state',
    'Processes by how far records have been read before they are asked for: loading, complete, full, or refused.',
    'state',
    () => {
      const figures = preload();
      if (figures === null) return {};
      return Object.fromEntries(preloadStates.map((state) => [state, Number(state === figures.state)]));
    },
  );
  metrics.gaugeByWord(
    'gateway_record_preload_records',
    'Keys and merchants held in memory, and keys of all environments that the newest look at the store came upon.',
    'kind',
    () => {
      const figures = preload();
      return figures === null ? {} : { keys: figures.keys, merchants: figures.merchants, seen: figures.seen };
    },
  );
}

/** Shows how often keys came where somebody else may have read them. */
export function showExposedKeys(metrics: GatewayMetrics, exposedKeys: ExposedKeys): void {
  metrics.counterByWord(
    'gateway_keys_exposed_total',
    'Refused requests whose key is known, or could not be looked up, and came over plain HTTP or from Tor, by code.',
    'code',
    () => exposedKeys.counts(),
  );
}

/** Shows which certificates are in use, and whether those in the files could be. */
export function showTls(metrics: GatewayMetrics, { endpoint, reload }: OpenTls): void {
  metrics.showCertificates(() => endpoint.material.certificates);
  metrics.gauge(
    'gateway_tls_files_usable',
    '1 while the files of certificates and ticket keys can be used, 0 while those from before stay in use.',
    () => Number(reload.problem === null),
    'min',
  );
}

/** Shows how near a gateway is to `limits.connections` and to the `maxInFlight` of its upstreams, what it sent twice, and which upstreams are out of step. */
export function showLoad(
  metrics: GatewayMetrics,
  listeners: ReadonlyMap<string, Listener>,
  upstreams: ReadonlyMap<string, Upstream>,
  buffers: BodyBuffers,
): void {
  showBodies(metrics, upstreams, buffers);
  metrics.gaugeByWord('gateway_connections', 'Connections that are open, by listener.', 'listener', () =>
    Object.fromEntries([...listeners].map(([name, { connections }]) => [name, connections.size])),
  );
  metrics.gaugeByWord(
    'gateway_connections_limit',
    'Connections that may be open, by listener: limits.connections, or fewer where the memory does not allow them.',
    'listener',
    () => Object.fromEntries([...listeners].map(([name, { limiter }]) => [name, limiter.limit])),
  );
  metrics.gaugeByWord(
    'gateway_connections_without_key',
    'Open connections that never had an accepted request, by listener; those of trusted proxies do not count.',
    'listener',
    () => Object.fromEntries([...listeners].map(([name, { limiter }]) => [name, limiter.withoutKey])),
  );
  metrics.counterByWord(
    'gateway_connections_evicted_total',
    'Connections that were closed to make room for another one, by reason.',
    'reason',
    () =>
      Object.fromEntries(
        evictions.map((reason) => [
          reason,
          [...listeners.values()].reduce((sum, { limiter }) => sum + limiter.evicted[reason], 0),
        ]),
      ),
  );
  metrics.gaugeByWord(
    'gateway_upstream_requests_in_flight',
    'Requests that an upstream has not answered yet, by upstream.',
    'upstream',
    () => Object.fromEntries([...upstreams].map(([name, { inFlight }]) => [name, inFlight])),
  );
  metrics.counterByWord(
    'gateway_upstream_requests_repeated_total',
    'Requests that were sent once more, as a kept connection had ended without a byte of an answer, by upstream.',
    'upstream',
    () => Object.fromEntries([...upstreams].map(([name, { repeated }]) => [name, repeated])),
  );
  metrics.gaugeByWord(
    'gateway_upstream_bound_idle_connections',
    'Idle connections that serve one merchant only, because they have carried a request body, by upstream.',
    'upstream',
    () => Object.fromEntries([...upstreams].map(([name, { boundIdle }]) => [name, boundIdle])),
  );
  metrics.counterByWord(
    'gateway_upstream_unsolicited_bytes_total',
    'Connections that were closed because the service sent bytes that no request had asked for, by upstream.',
    'upstream',
    () => Object.fromEntries([...upstreams].map(([name, { unsolicited }]) => [name, unsolicited])),
  );
}

/** Shows the memory that bodies take which have not arrived yet, and which bodies were given up. */
function showBodies(metrics: GatewayMetrics, upstreams: ReadonlyMap<string, Upstream>, buffers: BodyBuffers): void {
  metrics.gauge(
    'gateway_buffered_body_bytes',
    'Bytes of request bodies that have not arrived yet.',
    () => buffers.bytes,
  );
  metrics.counterByWord(
    'gateway_bodies_refused_total',
    'Request bodies that were given up, by reason: memory, as that for bodies was used up; slow, as too little came of one that has a place.',
    'reason',
    () => ({
      memory: buffers.refused,
      slow: [...upstreams.values()].reduce((sum, { slowBodies }) => sum + slowBodies, 0),
    }),
  );
}
