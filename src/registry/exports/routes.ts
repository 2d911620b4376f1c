import { success } from '../../rest/envelope.js';
import { readHistory } from '../projection/history.js';
import type { Routes } from '../routes.js';
import { exportPage } from './export-page.js';
import { exportPageSchema, exportQuery } from './schema.js';

/** Merchants and keys, as an import takes them. */
export const exportRoutes: Routes = (app, { database }) => {
  app.get(
    '/exports',
    {
      schema: { querystring: exportQuery },
      config: {
        operation: {
          summary: 'Merchants and keys as an import takes them: keys by their hashes, without the keys themselves',
          data: exportPageSchema,
        },
      },
    },
    async ({ query: { after, until, ...filter } }) => {
      const { revision } = await readHistory(database);
      const page = await exportPage(database, { ...filter, until: Number(until ?? revision) }, after);
      return success('Exported', { ...page, revision });
    },
  );
};
