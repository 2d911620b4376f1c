import { permissions } from '../../config/schema/permissions.js';
import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import Type from '../../typebox/typebox.js';
import { idIn } from '../fields.js';
import { changeOrRequest } from '../approvals/requests.js';
import type { Routes } from '../routes.js';
import { requireProof } from './access.js';
import { recordingRefusals } from './recorded-refusals.js';
import { authorOf, callerOf } from './request-author.js';
import type { Attempts } from './attempts.js';
import type { CallerSession } from './caller.js';
import type { MerchantApi } from '../console/create-console.js';
import { changeAdministrator, createAdministrator, findAdministrator, listAdministrators } from './repository.js';
import { permits, roleNames, roles } from './roles.js';
import {
  administratorChangesBody,
  administratorSchema,
  administratorsQuery,
  createdTokenSchema,
  credentialsQuery,
  givesRights,
  identitySchema,
  newAdministratorBody,
  newTokenBody,
  roleSchema,
  tokenSchema,
} from './schema.js';
import { createToken, listTokens, revokeToken } from './tokens.js';

/** Dependencies of the routes of administrators. */
export interface AdministratorRouteOptions {
  readonly attempts: Attempts;
  /** Whether people sign in with an OpenID provider. */
  readonly hasSignIn: boolean;
  /** Returns the URLs at which merchants reach the gateways, and the CA file; each is null if it is not configured. */
  readonly merchantApi: () => MerchantApi;
  /** Whether the console shows the wallets of the services. */
  readonly hasWallets: boolean;
  /** Called after `POST /administrators` has created an owner. */
  readonly onOwner?: (() => void) | undefined;
}

/** Adds the routes that manage administrators and their tokens, and that show the caller (`/me`) and the roles. */
export const administratorRoutes =
  ({ attempts, hasSignIn, hasWallets, merchantApi, onOwner }: AdministratorRouteOptions): Routes =>
  (app, context) => {
    const { database } = context;

    app.get(
      '/me',
      {
        schema: { querystring: noQuery },
        config: {
          operation: { summary: 'The caller, and the permissions of the caller', data: identitySchema },
          access: { permission: 'identity:read', merchant: 'own' },
        },
      },
      (request) => {
        const { name, administratorId, proof, roles: held, merchantId, expiresAt, session } = callerOf(request);
        const identity = {
          ...{ name, administratorId, proof, roles: held },
          permissions: permissions.filter((permission) => permits(held, permission)),
          ...{ merchantId, expiresAt: textOf(expiresAt), address: authorOf(request).source },
          ...{ merchantApi: merchantApi(), hasSignIn, hasWallets, session: session && shownSession(session) },
        };
        return success('Identity retrieved', identity);
      },
    );

    app.get(
      '/roles',
      {
        schema: { querystring: noQuery },
        config: {
          operation: { summary: 'All roles and their permissions', data: Type.Array(roleSchema) },
          access: { permission: 'identity:read', merchant: 'own' },
        },
      },
      () =>
        success(
          'Roles retrieved',
          roleNames.map((name) => ({ name, ...roles[name] })),
        ),
    );

    app.post(
      '/administrators',
      {
        schema: { body: newAdministratorBody, querystring: noQuery },
        config: {
          operation: { summary: 'Create an administrator', status: 201, data: administratorSchema },
          access: { permission: 'administrators:write', isProven: true },
        },
      },
      async (request, reply) => {
        const created = await changeOrRequest(context, request, request.body, (guard) =>
          createAdministrator(context, authorOf(request), request.body, guard),
        );
        if (created.roles.includes('owner')) onOwner?.();
        reply.code(201);
        return success('Administrator created', created);
      },
    );

    app.get(
      '/administrators',
      {
        schema: { querystring: administratorsQuery },
        config: {
          operation: { summary: 'Administrators, sorted by name', page: administratorSchema },
          access: { permission: 'administrators:read', reads: 'members' },
        },
      },
      async ({ query }) => {
        const paging = pagingOf(query);
        return successPage('Administrators retrieved', await listAdministrators(database, query, paging), paging);
      },
    );

    app.get(
      '/administrators/:id',
      {
        schema: { params: idParams, querystring: noQuery },
        config: {
          operation: { summary: 'One administrator', data: administratorSchema },
          access: { permission: 'administrators:read' },
        },
      },
      async ({ params }) =>
        success('Administrator retrieved', await findAdministrator(database, idIn(params, 'Administrator'))),
    );

    app.patch(
      '/administrators/:id',
      {
        schema: { params: idParams, body: administratorChangesBody, querystring: noQuery },
        config: {
          operation: { summary: 'Change or disable an administrator', data: administratorSchema },
          access: { permission: 'administrators:write' },
        },
      },
      async (request) => {
        const id = idIn(request.params, 'Administrator');
        if (givesRights(request.body)) await requireProof(request, { attempts, clock: context.clock });
        const changed = await recordingRefusals(request, attempts, () =>
          changeOrRequest(context, request, request.body, (guard) =>
            changeAdministrator(context, authorOf(request), id, request.body, guard),
          ),
        );
        return success('Administrator changed', changed);
      },
    );

    app.post(
      '/tokens',
      {
        schema: { body: newTokenBody, querystring: noQuery },
        config: {
          operation: { summary: 'Create a token, shown once', status: 201, data: createdTokenSchema },
          access: { permission: 'tokens:own', merchant: 'own', isProven: true },
        },
      },
      async (request, reply) => {
        const created = await recordingRefusals(request, attempts, () =>
          createToken(context, authorOf(request), callerOf(request), request.body),
        );
        reply.code(201);
        return success('Token created', created);
      },
    );

    app.get(
      '/tokens',
      {
        schema: { querystring: credentialsQuery },
        config: {
          operation: { summary: 'Tokens of an administrator, newest first', page: tokenSchema },
          access: { permission: 'tokens:own', merchant: 'own' },
        },
      },
      async (request) => {
        const paging = pagingOf(request.query);
        const { administratorId } = request.query;
        const page = await recordingRefusals(request, attempts, () =>
          listTokens(context, () => authorOf(request), callerOf(request), administratorId, paging),
        );
        return successPage('Tokens retrieved', page, paging);
      },
    );

    app.post(
      '/tokens/:id/revoke',
      {
        schema: { params: idParams, querystring: noQuery },
        config: {
          operation: { summary: 'Revoke a token at once', data: tokenSchema },
          access: { permission: 'tokens:own', merchant: 'own' },
        },
      },
      async (request) => {
        const id = idIn(request.params, 'Token');
        const revoked = await recordingRefusals(request, attempts, () =>
          revokeToken(context, authorOf(request), callerOf(request), id),
        );
        return success('Token revoked', revoked);
      },
    );
  };

function shownSession({ id, createdAt, provenAt, provenUntil, idleEndsAt }: CallerSession) {
  return {
    ...{ id, createdAt: new Date(createdAt).toISOString(), idleEndsAt: new Date(idleEndsAt).toISOString() },
    ...{ provenAt: textOf(provenAt), provenUntil: textOf(provenUntil) },
  };
}

function textOf(moment: number | null): string | null {
  return moment === null ? null : new Date(moment).toISOString();
}
