import { success } from '../../rest/envelope.js';
import { noQuery } from '../../rest/rest-app.js';
import type { ProjectionWait } from '../propagation.js';
import { authorOf } from '../administrators/request-author.js';
import type { Routes } from '../routes.js';
import { checkEntries } from './check-entries.js';
import { importEntries } from './import-entries.js';
import { checkBody, checkedSchema, importBodies, importBody, importedSchema } from './schema.js';

/**
 * Adds the routes that import merchants, and keys by their hashes, in batches. A response waits until the records are
 * in the store, or until a timeout. It does not wait for gateways, because their caches have no older version of the
 * new records. The wait throttles large imports, so the outbox (records to write to the store) stays short.
 */
export function importRoutes(untilProjected: ProjectionWait): Routes {
  return (app, context) => {
    app.post(
      '/imports/check',
      {
        schema: { body: checkBody, querystring: noQuery },
        config: {
          operation: {
            summary: 'Report what an import would create and which problems it has, without storing anything',
            body: importBodies.check,
            data: checkedSchema,
            isRead: true,
          },
          access: { permission: 'records:import' },
        },
      },
      async ({ body }) => {
        const { merchants, keys, present, problems } = await checkEntries(context, body.entries, body.merchants);
        const created = { merchants: merchants.length, keys: keys.length };
        return success('Import checked', { created, present, problems });
      },
    );

    app.post(
      '/imports',
      {
        schema: { body: importBody, querystring: noQuery },
        config: {
          operation: {
            summary: 'Import merchants and keys (as hashes); if one entry is invalid, nothing is imported',
            body: importBodies.import,
            data: importedSchema,
          },
          access: { permission: 'records:import' },
        },
      },
      async (request, reply) => {
        const imported = await importEntries(context, authorOf(request), request.body.entries);
        const projected = imported.revision === null || (await untilProjected(imported.revision));
        reply.code(projected ? 200 : 202);
        return success('Imported', { ...imported, projected });
      },
    );
  };
}
