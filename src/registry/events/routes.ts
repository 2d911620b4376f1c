import { keyText, type NoteSigner } from '../../evidence/signed-note.js';
import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import { type Access } from '../administrators/access.js';
import { authorOf, callerOf } from '../administrators/request-author.js';
import type { Routes } from '../routes.js';
import { chainState, readChain } from './chain.js';
import { beginExport, readEventExport } from './exports.js';
import { eventFilterOf } from './filter.js';
import { listEvents } from './repository.js';
import { begunExportSchema, eventExportPageSchema, exportQuery, exportsQuery } from './schema.js';
import { chainPageSchema, chainQuery, chainStateSchema, eventSchema, eventsQuery } from './schema.js';
import { appendedSchema, servicesEventsBody } from './schema.js';
import { appendServicesEvents } from './services-events.js';

const listAccess: Access = { permission: 'events:read', merchant: 'list' };
const chainAccess: Access = { permission: 'events:read' };
const exportAccess: Access = { permission: 'events:export' };

/**
 * Adds the routes of the audit trail: its events, their export, events that the services add, and the hash chain that
 * reveals changed events.
 * @param signer signs the end of the chain; null: the end is not signed
 */
export function eventRoutes(signer: NoteSigner | null): Routes {
  return (app, context) => {
    const { database, clock } = context;
    const operation = { summary: 'Who changed what and when, newest first', page: eventSchema };
    app.get(
      '/events',
      { schema: { querystring: eventsQuery }, config: { operation, access: listAccess } },
      async (request) => {
        const { query } = request;
        const filter = { ...eventFilterOf(query), memberOf: callerOf(request).merchantId };
        const paging = pagingOf(query);
        return successPage('Events retrieved', await listEvents(database, filter, paging), paging);
      },
    );

    app.post(
      '/events/exports',
      {
        schema: { querystring: exportsQuery },
        config: {
          operation: {
            summary: 'Begin an export of events; the export is recorded as an event too',
            status: 201,
            data: begunExportSchema,
          },
          access: exportAccess,
        },
      },
      async (request, reply) => {
        const { after: from, ...filter } = request.query;
        const after = Number(from ?? 0);
        const seq = await beginExport({ database, clock }, authorOf(request), filter, after);
        reply.code(201);
        return success('Export begun', { seq, after });
      },
    );

    app.get(
      '/events/exports/:id',
      {
        schema: { params: idParams, querystring: exportQuery },
        config: {
          operation: { summary: 'The events of an export, oldest first', data: eventExportPageSchema },
          access: exportAccess,
        },
      },
      async (request) => {
        const { params, query } = request;
        const after = Number(query.after ?? 0);
        return success('Events exported', await readEventExport(database, params.id, callerOf(request), after));
      },
    );

    app.post(
      '/events/services',
      {
        schema: { body: servicesEventsBody, querystring: noQuery },
        config: {
          operation: {
            summary:
              'Add events about what operators did, tried to do and read in the services; an event whose id is already stored is skipped',
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
          operation: {
            summary:
              'The newest link of the hash chain of events, its signature, and the number of events outside the chain',
            data: chainStateSchema,
          },
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
          operation: {
            summary:
              'The events in the form from which their hash chain is computed, oldest first, and the signed checkpoints of the chain',
            data: chainPageSchema,
          },
          access: chainAccess,
        },
      },
      async ({ query }) => success('Rows retrieved', await readChain(database, Number(query.after ?? 0))),
    );
  };
}
