import type { WriteProbe } from '../database/write-probe.js';
import { failure, success } from '../rest/envelope.js';
import type { RestApp } from '../rest/rest-app.js';
import { readHistory } from './projection/history.js';
import type { Projector } from './projection/projector.js';
import { repairPausedWarning } from './projection/repair-pause.js';
import type { RegistryDatabase } from './registry-database.js';

/** What readiness depends on. */
export interface HealthSources {
  readonly database: RegistryDatabase;
  readonly writes: Pick<WriteProbe, 'problem'>;
  readonly storeWarnings?: (() => readonly string[]) | undefined;
  readonly projector: Pick<Projector, 'isFailing' | 'hasProjected' | 'eviction' | 'repairFigures'>;
}

/**
 * Liveness and readiness, without a token. A store of the gateways that is away does not make the registry unready:
 * changes are still taken, and kept for it.
 */
export function addHealth(app: RestApp, { database, writes, projector, storeWarnings }: HealthSources): void {
  app.get('/livez', { config: { isOpen: true } }, () => success('Alive', null));
  app.get('/readyz', { config: { isOpen: true } }, async (_request, reply) => {
    const problem = await writes.problem();
    if (problem !== null) {
      reply.code(503);
      return failure(problem);
    }
    const { revision } = await readHistory(database);
    const isCurrent = !projector.isFailing && (await projector.hasProjected(revision));
    return success('Ready', {
      projection: isCurrent ? 'current' : 'behind',
      warnings: [
        ...(projector.repairFigures.isPaused ? [repairPausedWarning] : []),
        ...projector.eviction.warnings,
        ...(storeWarnings?.() ?? []),
      ],
    });
  });
}
