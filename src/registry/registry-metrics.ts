import type { WriteProbe } from '../database/write-probe.js';
import type { ApiMetrics } from '../rest/api-metrics.js';
import type { RecordsStore } from './ports.js';
import { readHistory } from './projection/history.js';
import { oldestWaiting } from './projection/outbox.js';
import type { RegistryDatabase } from './registry-database.js';

/** What the figures are taken from. */
export interface RegistryFigures {
  readonly database: RegistryDatabase;
  readonly writes: Pick<WriteProbe, 'problem'>;
  readonly store: Pick<RecordsStore, 'gateways'>;
  readonly projector: { readonly isFailing: boolean };
}

/** Shows how far changes have come: into the database, into the store of the gateways, and to the gateways. */
export function showRegistry(metrics: ApiMetrics, { database, writes, store, projector }: RegistryFigures): void {
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
  metrics.gauge('registry_gateways', 'Gateways that are alive.', async () => (await store.gateways()).length);
  metrics.gauge(
    'registry_acknowledged_revision',
    'Number of the newest change that every gateway that is alive has acknowledged; NaN where there is none.',
    async () => {
      const acknowledged = (await store.gateways()).map(({ revision }) => revision);
      return acknowledged.length === 0 ? NaN : Math.min(...acknowledged);
    },
  );
}
