import { requireWritable } from '../database/require-writable.js';
import { failure, success } from '../rest/envelope.js';
import type { RestApp } from '../rest/rest-app.js';
import type { ServicesDatabase } from './services-database.js';

/** Liveness and readiness, in nobody's name. */
export function addHealth(app: RestApp, database: ServicesDatabase): void {
  app.get('/livez', { config: { isOpen: true } }, () => success('Alive', null));
  app.get('/readyz', { config: { isOpen: true } }, async (_request, reply) => {
    try {
      await requireWritable(database);
      return success('Ready', null);
    } catch {
      reply.code(503);
      return failure('The database is away, or cannot be written to');
    }
  });
}
