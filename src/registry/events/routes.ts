import { keyText, type NoteSigner } from '../../evidence/signed-note.js';
import { success, successPage } from '../../rest/envelope.js';
import { parseDateTime } from '../../rest/moment.js';
import { pagingOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import { type Access, authorOf, callerOf } from '../administrators/access.js';
import type { Routes } from '../routes.js';
import { chainState, readChain } from './chain.js';
import { listEvents } from './repository.js';
import {
  appendedSchema,
  chainPageSchema,
  chainQuery,
  chainStateSchema,
  eventSchema,
  eventsQuery,
  servicesEventsBody,
} from './schema.js';
import { appendServicesEvents } from './services-events.js';

const listAccess: Access = { permission: 'events:read', merchant: 'list' };
const chainAccess: Access = { permission: 'events:read' };

/**
 * Routes of the audit trail: its events, and the chain that proves them.
 * @param signer signs the end of the chain; null: nothing signs it
 */
export function eventRoutes(signer: NoteSigner | null): Routes {
  return (app, context) => {
    const { database } = context;
    const operation = { summary: 'Who changed what and when, newest first', page: eventSchema };
    app.get(
      '/events',
      { schema: { querystring: eventsQuery }, config: { operation, access: listAccess } },
      async (request) => {
        const { query } = request;
        const { since, ...given } = query;
        const moment = since === undefined ? undefined : parseDateTime(since);
        if (moment === null) {
          throw Refusal.invalid([{ path: 'since', message: 'since must be a date and time that exists' }]);
        }
        const filter = { ...given, since: moment, memberOf: callerOf(request).merchantId };
        const paging = pagingOf(query);
        return successPage('Events retrieved', await listEvents(database, filter, paging), paging);
      },
    );

    app.post(
      '/events/services',
      {
        schema: { body: servicesEventsBody, querystring: noQuery },
        config: {
          operation: {
            summary: 'Append changes that operators made in the services, once per id',
            data: appendedSchema,
          },
          access: { permission: 'events:append' },
        },
      },
      async (request) => {
        const appended = await appendServicesEvents(context, authorOf(request), request.body.events);
        return success('Events appended', { appended });
      },
    );

    app.get(
      '/events/chain',
      {
        schema: { querystring: noQuery },
        config: {
          operation: { summary: 'The end of the chain of events, to verify it', data: chainStateSchema },
          access: chainAccess,
        },
      },
      async () => {
        const publicKey = signer === null ? null : keyText(signer.key);
        return success('Chain retrieved', { ...(await chainState(database, signer)), publicKey });
      },
    );

    app.get(
      '/events/chain/rows',
      {
        schema: { querystring: chainQuery },
        config: {
          operation: { summary: 'The events as the chain covers them, oldest first', data: chainPageSchema },
          access: chainAccess,
        },
      },
      async ({ query }) => success('Rows retrieved', await readChain(database, Number(query.after ?? 0))),
    );
  };
}
