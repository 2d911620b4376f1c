import type { WriteProbe } from '../database/open-database.js';
import type { ApiMetrics } from '../rest/api-metrics.js';
import { knownGateways, type GatewaySources } from './gateways/known-gateways.js';
import { readHistory } from './projection/history.js';
import { oldestWaiting } from './projection/outbox.js';
import type { Projector } from './projection/projector.js';

/** What the figures are taken from. */
export interface RegistryFigures extends GatewaySources {
  readonly writes: Pick<WriteProbe, 'problem'>;
  readonly projector: Pick<Projector, 'isFailing' | 'eviction' | 'repairFigures'>;
}

/** Shows how far changes have come: into the database, into the store of the gateways, and to the gateways. */
export function showRegistry(metrics: ApiMetrics, { writes, projector, ...sources }: RegistryFigures): void {
  const { database } = sources;
  const newest = async (): Promise<number> => (await readHistory(database)).revision;
  metrics.gauge('registry_ready', '1 while the database can be written to, 0 while it cannot.', async () =>
    Number((await writes.problem()) === null),
  );
  metrics.gauge('registry_revision', 'Number of the newest change.', newest);
  metrics.gauge(
    'registry_projected_revision',
    'Number of the newest change that is in the store of the gateways, with all before it.',
    async () => {
      const revision = await newest();
      const oldest = await oldestWaiting(database);
      return oldest === null ? revision : oldest - 1;
    },
  );
  metrics.gauge(
    'registry_projection_failing',
    '1 while this process cannot write to the store of the gateways, 0 while it can, or need not.',
    () => Number(projector.isFailing),
  );
  metrics.gauge(
    'registry_redis_evicted_keys',
    'Records, or others, that Redis has evicted since it started; NaN where it was not reached.',
    () => projector.eviction.evictedKeys ?? NaN,
  );
  metrics.gauge(
    'registry_redis_may_evict',
    '1 while Redis is set to evict records, or what gateways write there, when it is full; 0 while it is not.',
    () => Number(projector.eviction.warnings.length > 0),
  );
  metrics.gauge(
    'registry_gateways',
    'Gateways that may use what they hold.',
    async () => (await knownGateways(sources)).gateways.length,
  );
  metrics.gauge(
    'registry_roster_complete',
    '1 while the roster names every gateway that may use a record, 0 while it may lack one: then no change is in force.',
    async () => Number((await knownGateways(sources)).isComplete),
  );
  metrics.gauge(
    'registry_held_back_records',
    'Keys and merchants that stay inactive after the database was restored, until an operator lifts each one.',
    async () => {
      const held = database.selectFrom('held_back').select((it) => it.fn.countAll<number>().as('count'));
      return (await held.executeTakeFirstOrThrow()).count;
    },
  );
  metrics.gauge(
    'registry_acknowledged_revision',
    'Number of the newest change that every gateway has acknowledged; NaN where there is none.',
    async () => {
      const acknowledged = (await knownGateways(sources)).gateways.map(({ revision }) => revision ?? 0);
      return acknowledged.length === 0 ? NaN : Math.min(...acknowledged);
    },
  );
  metrics.counter(
    'registry_records_repaired_total',
    'Records in the store of the gateways that this process found not to be what the database says, and wrote anew.',
    () => [...projector.repairFigures.repaired].map(([cause, value]) => ({ labels: { cause }, value })),
  );
  metrics.gauge(
    'registry_repair_paused',
    '1 while this process leaves records missing because Redis evicts others for them, 0 while it does not.',
    () => Number(projector.repairFigures.isPaused),
  );
  metrics.counter(
    'registry_records_compared_total',
    'Records in the store of the gateways that this process compared with the database.',
    () => [{ labels: {}, value: projector.repairFigures.compared }],
  );
  metrics.gauge(
    'registry_records_all_compared_timestamp_seconds',
    'When this process last had compared every record with the database; NaN where it never had.',
    () => (projector.repairFigures.sweptAt ?? NaN) / 1_000,
  );
}
