import type { WriteProbe } from '../database/write-probe.js';
import type { ApiMetrics } from '../rest/api-metrics.js';
import { failure, success } from '../rest/envelope.js';
import { codeOf } from '../rest/refusal.js';
import type { RestApp } from '../rest/rest-app.js';
import type { BalanceCheck } from './ledger/balance-check.js';

/** What readiness and the metrics depend on. */
export interface HealthSources {
  readonly writes: Pick<WriteProbe, 'problem'>;
  readonly ledger: Pick<BalanceCheck, 'state' | 'warnings'>;
}

/**
 * Liveness and readiness, in nobody's name, and both among the metrics. A ledger that does not agree is a warning: without the
 * services nobody is paid, and nothing would be clearer.
 */
export function addHealth(app: RestApp, metrics: ApiMetrics, { writes, ledger }: HealthSources): void {
  app.get('/livez', { config: { isOpen: true } }, () => success('Alive', null));
  app.get('/readyz', { config: { isOpen: true } }, async (_request, reply) => {
    const problem = await writes.problem();
    if (problem === null) return success('Ready', { warnings: ledger.warnings });
    reply.code(503);
    return failure(problem, [], codeOf(503));
  });
  metrics.gauge('services_ready', '1 while the database can be written to, 0 while it cannot.', async () =>
    Number((await writes.problem()) === null),
  );
  metrics.gauge(
    'services_ledger_mismatched_wallets',
    'Wallets whose balance was not the sum of their entries when this process last looked; NaN before it has.',
    () => ledger.state?.mismatchedWallets ?? NaN,
  );
  metrics.gauge(
    'services_ledger_unbalanced_currencies',
    'Environments and currencies whose accounts did not add up to zero when this process last looked; NaN before it has.',
    () => ledger.state?.unbalancedCurrencies ?? NaN,
  );
  metrics.gauge(
    'services_ledger_checked_timestamp_seconds',
    'When this process last compared every balance with the ledger; NaN where it never has.',
    () => (ledger.state?.checkedAt ?? NaN) / 1_000,
  );
}
