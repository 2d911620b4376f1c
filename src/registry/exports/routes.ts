import { LRUCache } from 'lru-cache';
import { success } from '../../rest/envelope.js';
import { authorOf } from '../administrators/request-author.js';
import { makeUnpublishedChange } from '../change.js';
import { readHistory } from '../projection/history.js';
import type { Routes } from '../routes.js';
import { readExportPage } from './export-page.js';
import { exportPageSchema, exportQuery } from './schema.js';

/** How long after its last page an export may continue without a further event. */
const pauseMilliseconds = 3_600_000;
const mostExports = 1000;

/** The route that exports merchants and keys in the format of an import. Each export is an event. */
export const exportRoutes: Routes = (app, context) => {
  const { database, clock } = context;
  /** When each export read its last page, by author and filter. */
  const running = new LRUCache<string, number>({ max: mostExports });
  app.get(
    '/exports',
    {
      schema: { querystring: exportQuery },
      config: {
        operation: {
          summary: 'Merchants and keys as an import takes them: keys by their hashes, without the keys themselves',
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
      // A client may begin in the middle, or continue at another replica: that is an event too.
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
