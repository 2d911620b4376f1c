import { isWritable } from '../database/is-writable.js';
import type { ApiMetrics } from '../rest/api-metrics.js';
import { failure, success } from '../rest/envelope.js';
import type { RestApp } from '../rest/rest-app.js';
import type { ServicesDatabase } from './services-database.js';

/** Liveness and readiness, in nobody's name, and readiness among the metrics. */
export function addHealth(app: RestApp, metrics: ApiMetrics, database: ServicesDatabase): void {
  app.get('/livez', { config: { isOpen: true } }, () => success('Alive', null));
  app.get('/readyz', { config: { isOpen: true } }, async (_request, reply) => {
    if (await isWritable(database)) return success('Ready', null);
    reply.code(503);
    return failure('The database is away, or cannot be written to');
  });
  metrics.gauge('services_ready', '1 while the database can be written to, 0 while it cannot.', async () =>
    Number(await isWritable(database)),
  );
}
