import type { WriteProbe } from '../database/open-database.js';
import { countExpiring } from './administrators/tokens.js';
import { countWaiting } from './approvals/requests.js';
import { countFindings } from './checkpoints/findings.js';
import type { Clock } from '../gateway/store-ports.js';
import type { ApiMetrics } from '../rest/api-metrics.js';
import { knownGateways, type GatewaySources } from './gateways/known-gateways.js';
import { readHistory } from './projection/history.js';
import type { ServerTls } from '../tls/server-tls.js';
import { oldestWaiting } from './projection/outbox.js';
import type { UsageBatches } from './usage/usage-batches.js';
import type { Projector } from './projection/projector.js';
import { countUnusual } from './unusual/findings.js';
import { countUndelivered } from './unusual/webhooks.js';

/** Dependencies of the metrics. */
export interface RegistryMetricSources extends GatewaySources {
  readonly writes: Pick<WriteProbe, 'problem'>;
  readonly clock: Clock;
  readonly projector: Pick<Projector, 'isFailing' | 'eviction' | 'repairCounts'>;
  readonly tls: ServerTls | null;
  readonly usageBatches?: Pick<UsageBatches, 'results'> | undefined;
}

/**
 * Adds the metrics of the registry. They show whether the newest changes have reached the database, the gateways' store
 * and the gateways. They also show how records were repaired, and what needs an administrator's attention.
 */
export function addRegistryMetrics(
  metrics: ApiMetrics,
  { writes, projector, tls, usageBatches, ...sources }: RegistryMetricSources,
): void {
  const { database } = sources;
  if (tls !== null) addCertificateMetrics(metrics, tls);
  const newest = async (): Promise<number> => (await readHistory(database)).revision;
  metrics.gauge('registry_ready', '1 while the database can be written to, 0 while it cannot.', async () =>
    Number((await writes.problem()) === null),
  );
  metrics.gauge('registry_revision', 'Revision (number) of the newest change in the database.', newest);
  metrics.gauge(
    'registry_projected_revision',
    "Revision (number of a change) up to which all changes are in the gateways' store.",
    async () => {
      const revision = await newest();
      const oldest = await oldestWaiting(database);
      return oldest === null ? revision : oldest - 1;
    },
  );
  metrics.gauge(
    'registry_projection_failing',
    "1 while this process fails to write to the gateways' store, otherwise 0.",
    () => Number(projector.isFailing),
  );
  metrics.gauge(
    'registry_redis_evicted_keys',
    'Redis keys that Redis has evicted since Redis started; NaN before this process has first read the number.',
    () => projector.eviction.evictedKeys ?? NaN,
  );
  metrics.gauge(
    'registry_redis_may_evict',
    "1 while the maxmemory-policy allows Redis, when its memory is full, to evict records, or to evict the gateways' acknowledgements and reports; otherwise 0.",
    () => Number(projector.eviction.warnings.length > 0),
  );
  metrics.gauge(
    'registry_gateways',
    'Gateways whose confirmation the registry waits for before a change counts as in force: those on its list of gateways (the roster), and any other that confirms changes.',
    async () => (await knownGateways(sources)).gateways.length,
  );
  metrics.gauge(
    'registry_roster_complete',
    '1 while the registry knows every gateway that may use cached records; 0 while its list of gateways (the roster) may lack one: then no change counts as in force.',
    async () => Number((await knownGateways(sources)).isComplete),
  );
  metrics.gauge(
    'registry_held_back_records',
    'Keys and merchants held inactive after a restore of the database, until an operator reactivates them with "merchant-gateway restores lift".',
    async () => {
      const held = database.selectFrom('held_back').select((it) => it.fn.countAll<number>().as('count'));
      return (await held.executeTakeFirstOrThrow()).count;
    },
  );
  metrics.gauge(
    'registry_acknowledged_revision',
    'Revision of the newest change that every gateway has acknowledged; NaN without gateways.',
    async () => {
      const acknowledged = (await knownGateways(sources)).gateways.map(({ revision }) => revision ?? 0);
      return acknowledged.length === 0 ? NaN : Math.min(...acknowledged);
    },
  );
  metrics.counter(
    'registry_records_repaired_total',
    "Records in the gateways' store that differed from the database and that this process rewrote.",
    ['cause'],
    () => [...projector.repairCounts.repaired].map(([cause, value]) => ({ labels: { cause }, value })),
  );
  metrics.counter(
    'registry_checkpoint_findings_total',
    'Problems with access logs of gateways, found in their signed checkpoints.',
    ['kind'],
    async () => [...(await countFindings(database))].map(([kind, value]) => ({ labels: { kind }, value })),
  );
  metrics.counter('registry_unusual_findings_total', 'Findings about unusual use of keys.', ['rule'], async () =>
    [...(await countUnusual(database))].map(([rule, value]) => ({ labels: { rule }, value })),
  );
  metrics.gauge(
    'registry_webhooks_undelivered',
    'Webhooks whose delivery was given up, or has failed for ten minutes.',
    async () => countUndelivered(database, sources.clock.now()),
  );
  metrics.gauge(
    'registry_instance_keys_unconfirmed',
    'Keys that sign access logs and that no administrator has confirmed.',
    async () => {
      const keys = database.selectFrom('instance_keys').where('confirmed_at', 'is', null);
      return (await keys.select((it) => it.fn.countAll<number>().as('count')).executeTakeFirstOrThrow()).count;
    },
  );
  metrics.gauge(
    'registry_tokens_expiring',
    'Valid tokens of active administrators that expire within 14 days.',
    async () => countExpiring(database, sources.clock.now()),
  );
  metrics.counter(
    'registry_usage_batches_total',
    'Batches of request counts from gateways that this process has received, by result.',
    ['result'],
    () => Object.entries(usageBatches?.results ?? {}).map(([result, value]) => ({ labels: { result }, value })),
  );
  metrics.gauge(
    'registry_approvals_waiting',
    'Changes that wait for the approval of another administrator.',
    async () => countWaiting(database, sources.clock.now()),
  );
  metrics.gauge(
    'registry_repair_paused',
    '1 while this process does not repair missing records, because a full Redis would evict other records; otherwise 0.',
    () => Number(projector.repairCounts.isPaused),
  );
  metrics.counter(
    'registry_records_compared_total',
    "Records in the gateways' store that this process has compared with the database.",
    [],
    () => [{ labels: {}, value: projector.repairCounts.compared }],
  );
  metrics.gauge(
    'registry_records_all_compared_timestamp_seconds',
    'Time at which this process last finished comparing every record with the database, in seconds since 1970; NaN before the first time.',
    () => (projector.repairCounts.sweptAt ?? NaN) / 1_000,
  );
}

function addCertificateMetrics(metrics: ApiMetrics, tls: ServerTls): void {
  metrics.gauge(
    'registry_tls_certificate_not_before_seconds',
    'Beginning of validity of the certificate in use, in seconds since 1970.',
    () => tls.certificate.notBefore / 1000,
  );
  metrics.gauge(
    'registry_tls_certificate_not_after_seconds',
    'Expiry of the certificate in use, in seconds since 1970.',
    () => tls.certificate.notAfter / 1000,
  );
  metrics.gauge(
    'registry_tls_files_usable',
    '1 while the certificate files are valid; 0 while they are invalid and the previous certificate stays in use.',
    () => Number(tls.problem === null),
  );
}
