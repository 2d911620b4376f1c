import { success, successPage } from '../../rest/envelope.js';
import { pagingOf, pagingQuery } from '../../rest/paging.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import Type from '../../typebox/typebox.js';
import { actorOf } from '../../rest/actor.js';
import { idIn } from '../fields.js';
import { withPropagation } from '../propagation-schema.js';
import { answerChange, type Routes } from '../routes.js';
import { lift, listHeldBack } from './held-back.js';
import { mostRestores } from './restores.js';
import { heldBackSchema, restoreSchema } from './schema.js';

/** What is known of a database that was restored from a backup. */
export const restoreRoutes: Routes = (app, context) => {
  const { database, confirm } = context;

  app.get(
    '/restores',
    {
      schema: { querystring: noQuery },
      config: {
        operation: {
          summary: 'When the database was found to lack changes, or nobody could say that it lacks none, newest first',
          data: Type.Array(restoreSchema),
        },
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
      config: { operation: { summary: 'Keys and merchants that are held back, newest first', page: heldBackSchema } },
    },
    async ({ query }) => {
      const paging = pagingOf(query);
      return successPage('Held back records retrieved', await listHeldBack(database, paging), paging);
    },
  );

  const lifted = Type.Pick(heldBackSchema, ['id', 'keyId', 'kind', 'merchantId']);
  app.post(
    '/restores/held/:id/lift',
    {
      schema: { params: idParams, querystring: noQuery },
      config: {
        operation: {
          summary: 'Give a key or a merchant that is held back what the restored database says of it',
          data: withPropagation(lifted),
        },
      },
    },
    async (request, reply) => {
      const id = idIn(request.params, 'Record that is held back');
      const { held, revision } = await lift(context, actorOf(request), id);
      return answerChange(reply, 200, 'Record lifted', held, await confirm(revision, null));
    },
  );
};
