import { success, successPage } from '../../rest/envelope.js';
import { pagingOf, pagingQuery } from '../../rest/paging.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import Type from '../../typebox/typebox.js';
import { authorOf } from '../administrators/request-author.js';
import { idIn } from '../fields.js';
import { withPropagation } from '../propagation-schema.js';
import { respondToChange, type Routes } from '../routes.js';
import { lift, listHeldBack } from './held-back.js';
import { mostRestores } from './restores.js';
import { heldBackSchema, restoreSchema } from './schema.js';

/** Routes for restores of the database from a backup, and for the records that stay restricted after a restore. */
export const restoreRoutes: Routes = (app, context) => {
  const { database, confirm } = context;

  app.get(
    '/restores',
    {
      schema: { querystring: noQuery },
      config: {
        operation: {
          summary: 'Certain and suspected restores of the database from a backup, newest first',
          data: Type.Array(restoreSchema),
        },
        access: { permission: 'restores:read' },
      },
    },
    async () => {
      const rows = await database
        .selectFrom('restores')
        .selectAll()
        .orderBy('seq', 'desc')
        .limit(mostRestores)
        .execute();
      const shown = rows.map(({ found_at, newest_at, is_certain }) => ({
        foundAt: new Date(found_at).toISOString(),
        unknownSince: newest_at === null ? null : new Date(newest_at).toISOString(),
        certain: is_certain === 1,
      }));
      return success('Restores retrieved', shown);
    },
  );

  app.get(
    '/restores/held',
    {
      schema: { querystring: pagingQuery },
      config: {
        operation: {
          summary: 'Keys and merchants held inactive after a restore of the database, newest first',
          page: heldBackSchema,
        },
        access: { permission: 'restores:read' },
      },
    },
    async ({ query }) => {
      const paging = pagingOf(query);
      return successPage('Held-back records retrieved', await listHeldBack(database, paging), paging);
    },
  );

  const lifted = Type.Pick(heldBackSchema, ['id', 'keyId', 'kind', 'merchantId']);
  app.post(
    '/restores/held/:id/lift',
    {
      schema: { params: idParams, querystring: noQuery },
      config: {
        operation: {
          summary:
            'Reactivate a key or merchant that the registry held back after a restore. It gets back the state that it had in the restored database',
          data: withPropagation(lifted),
        },
        access: { permission: 'restores:write', isProven: true },
      },
    },
    async (request, reply) => {
      const id = idIn(request.params, 'Held-back record');
      const { held, revision } = await lift(context, authorOf(request), id);
      return respondToChange(reply, 200, 'Held-back record reactivated', held, await confirm(revision, null));
    },
  );
};
