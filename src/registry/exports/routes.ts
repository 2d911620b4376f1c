import { LRUCache } from 'lru-cache';
import { success } from '../../rest/envelope.js';
import { authorOf } from '../administrators/request-author.js';
import { makeUnpublishedChange } from '../change.js';
import { readHistory } from '../projection/history.js';
import type { Routes } from '../routes.js';
import { readExportPage } from './export-page.js';
import { exportPageSchema, exportQuery } from './schema.js';

/**
 * Time within which a client has to read the next page of an export. After a longer pause, the next page counts as a
 * new export, for which an event is stored.
 */
const pauseMilliseconds = 3_600_000;
const mostExports = 1000;

/** Adds the route that exports merchants and keys in the format of an import. Each export is stored as an event. */
export const exportRoutes: Routes = (app, context) => {
  const { database, clock } = context;
  /** The time at which the most recent page of each export was read. An author and a filter identify an export. */
  const running = new LRUCache<string, number>({ max: mostExports });
  app.get(
    '/exports',
    {
      schema: { querystring: exportQuery },
      config: {
        operation: {
          summary: 'Merchants and keys in the format of an import, with the hashes of keys instead of the keys',
          data: exportPageSchema,
        },
        access: { permission: 'records:export' },
      },
    },
    async (request) => {
      const { after, until, ...filter } = request.query;
      const author = authorOf(request);
      const name = JSON.stringify([author.administratorId, author.actor, filter.merchantId, filter.environment]);
      const now = clock.now();
      const readAt = running.get(name);
      // Stores an event for each first page. Also stores an event for a later page of an export that this process does
      // not know: the client might have begun in the middle, or at another replica.
      if (after === undefined || readAt === undefined || now - readAt >= pauseMilliseconds) {
        const event = { action: 'records.exported', merchantId: filter.merchantId ?? '', keyId: null } as const;
        const exported = { environment: filter.environment ?? null, after: after ?? null };
        const events = [{ ...event, before: null, after: exported }];
        await makeUnpublishedChange({ database, clock }, author, () => Promise.resolve({ result: null, events }));
      }
      running.set(name, now);
      const { revision } = await readHistory(database);
      const page = await readExportPage(database, { ...filter, until: Number(until ?? revision) }, after);
      return success('Exported', { ...page, revision });
    },
  );
};
