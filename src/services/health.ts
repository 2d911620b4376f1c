import type { WriteProbe } from '../database/write-probe.js';
import type { ApiMetrics } from '../rest/api-metrics.js';
import { failure, success } from '../rest/envelope.js';
import type { RestApp } from '../rest/rest-app.js';

/** Liveness and readiness, in nobody's name, and readiness among the metrics. */
export function addHealth(app: RestApp, metrics: ApiMetrics, writes: Pick<WriteProbe, 'problem'>): void {
  app.get('/livez', { config: { isOpen: true } }, () => success('Alive', null));
  app.get('/readyz', { config: { isOpen: true } }, async (_request, reply) => {
    const problem = await writes.problem();
    if (problem === null) return success('Ready', null);
    reply.code(503);
    return failure(problem);
  });
  metrics.gauge('services_ready', '1 while the database can be written to, 0 while it cannot.', async () =>
    Number((await writes.problem()) === null),
  );
}
