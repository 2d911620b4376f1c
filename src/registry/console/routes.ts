import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import { recordingRefusals } from '../administrators/recorded-refusals.js';
import type { Attempts } from '../administrators/attempts.js';
import { authorOf, callerOf } from '../administrators/request-author.js';
import { credentialsQuery } from '../administrators/schema.js';
import { idIn } from '../fields.js';
import type { Routes } from '../routes.js';
import { clearSession } from './cookies.js';
import { consoleOff, createLink } from './links.js';
import { consoleSessionSchema, linkSchema, newLinkBody } from './schema.js';
import { endSession, listSessions } from './session-list.js';

/** Dependencies of `consoleRoutes`. `origin` returns the origin of the console, or null if the console is off. */
export interface ConsoleRouteOptions {
  readonly attempts: Attempts;
  readonly origin: () => string | null;
}

/** Adds the routes that create one-time links of the console, and that list and end its sessions. */
export function consoleRoutes({ attempts, origin }: ConsoleRouteOptions): Routes {
  return (app, context) => {
    app.post(
      '/console-links',
      {
        schema: { body: newLinkBody, querystring: noQuery },
        config: {
          operation: {
            summary: 'Create a link that signs a person in to the console once',
            status: 201,
            data: linkSchema,
          },
          access: { permission: 'tokens:own', merchant: 'own', isProven: true },
        },
      },
      async (request, reply) => {
        const at = origin();
        if (at === null) throw consoleOff();
        const { administrator } = request.body;
        const link = await recordingRefusals(request, attempts, () =>
          createLink(context, authorOf(request), callerOf(request), { administrator, origin: at }),
        );
        reply.code(201);
        return success('Link created', link);
      },
    );

    app.get(
      '/sessions',
      {
        schema: { querystring: credentialsQuery },
        config: {
          operation: {
            summary: "An administrator's open console sessions, newest first",
            page: consoleSessionSchema,
          },
          access: { permission: 'tokens:own', merchant: 'own' },
        },
      },
      async (request) => {
        const paging = pagingOf(request.query);
        const { administratorId } = request.query;
        const page = await recordingRefusals(request, attempts, () =>
          listSessions(context, () => authorOf(request), callerOf(request), administratorId, paging),
        );
        return successPage('Sessions retrieved', page, paging);
      },
    );

    app.delete(
      '/sessions/:id',
      {
        schema: { params: idParams, querystring: noQuery },
        config: {
          operation: { summary: 'End a console session at once', data: consoleSessionSchema },
          access: { permission: 'tokens:own', merchant: 'own' },
        },
      },
      async (request, reply) => {
        const id = idIn(request.params, 'Session');
        const ended = await recordingRefusals(request, attempts, () =>
          endSession(context, authorOf(request), callerOf(request), id),
        );
        if (ended.isCurrent) reply.header('set-cookie', clearSession);
        return success('Session ended', ended);
      },
    );
  };
}
