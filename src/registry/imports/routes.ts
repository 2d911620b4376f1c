import { success } from '../../rest/envelope.js';
import { noQuery } from '../../rest/rest-app.js';
import type { ProjectionWait } from '../propagation.js';
import { authorOf } from '../administrators/request-author.js';
import { readHistory } from '../projection/history.js';
import type { Routes } from '../routes.js';
import { checkEntries } from './check-entries.js';
import { importEntries } from './import-entries.js';
import { checkBody, checkedSchema, importBodies, importBody, importedSchema } from './schema.js';

/**
 * Adds the routes that check and import merchants and keys in batches. Keys are imported as hashes. The response to an
 * import waits until the records are in the store, or until a timeout. This wait throttles large imports, so the outbox
 * (records to write to the store) stays short. The response does not wait for gateways, because their caches have no
 * older version of the new records.
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
          access: { permission: 'records:import', isProven: true },
        },
      },
      async (request, reply) => {
        const imported = await importEntries(context, authorOf(request), request.body.entries);
        // Existing entries may come from an import that is not in the store yet. So if the import creates nothing, the
        // response waits for all changes so far.
        const revision = imported.revision ?? (await readHistory(context.database)).revision;
        const projected = await untilProjected(revision);
        reply.code(projected ? 200 : 202);
        return success('Imported', { ...imported, projected });
      },
    );
  };
}
