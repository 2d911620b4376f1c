import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { type Access, requireProof } from '../administrators/access.js';
import { recordingRefusals } from '../administrators/recorded-refusals.js';
import type { Attempts } from '../administrators/attempts.js';
import {
  changeAdministrator,
  createAdministrator,
  findAdministrator,
  listAdministrators,
} from '../administrators/repository.js';
import { authorOf, callerOf } from '../administrators/request-author.js';
import { type Administrator, givesRights } from '../administrators/schema.js';
import { consoleOff, createMemberLink } from '../console/links.js';
import { linkSchema } from '../console/schema.js';
import { idIn } from '../fields.js';
import { findMerchant } from '../merchants/repository.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Routes } from '../routes.js';
import { type Member, memberChangesBody, memberSchema, membersQuery, newMemberBody } from './schema.js';

const memberParams = Type.Object({ ...idParams.properties, memberId: Type.String() });

/** Dependencies of `memberRoutes`. `origin` returns the origin of the console, or null if the console is off. */
export interface MemberRouteOptions {
  readonly attempts: Attempts;
  readonly origin: () => string | null;
}

const reading: Access = { permission: 'members:read', merchant: 'id', reads: 'members' };
const changing: Access = { permission: 'members:write', merchant: 'id' };

/** Adds the routes by which a merchant-admin or an owner manages the members of a merchant. */
export function memberRoutes({ attempts, origin }: MemberRouteOptions): Routes {
  return (app, context) => {
    const { database } = context;

    app.get(
      '/merchants/:id/members',
      {
        schema: { params: idParams, querystring: membersQuery },
        config: {
          operation: { summary: 'The members of a merchant, sorted by name', page: memberSchema },
          access: reading,
        },
      },
      async ({ params, query }) => {
        const paging = pagingOf(query);
        const { id: merchantId } = await findMerchant(database, idIn(params, 'Merchant'));
        const page = await listAdministrators(database, { status: query.status, merchantId }, paging);
        return successPage('Members retrieved', { ...page, items: page.items.map(toMember) }, paging);
      },
    );

    app.post(
      '/merchants/:id/members',
      {
        schema: { params: idParams, body: newMemberBody, querystring: noQuery },
        config: {
          operation: {
            summary: 'Add a member. To let them sign in, create a link for them next',
            status: 201,
            data: memberSchema,
          },
          access: { ...changing, isProven: true },
        },
      },
      async (request, reply) => {
        const { id: merchantId } = await findMerchant(database, idIn(request.params, 'Merchant'));
        const { name, role } = request.body;
        const given = { name, roles: [role], merchantId };
        const member = await recordingRefusals(request, attempts, () =>
          createAdministrator(context, authorOf(request), given),
        );
        reply.code(201);
        return success('Member added', toMember(member));
      },
    );

    app.patch(
      '/merchants/:id/members/:memberId',
      {
        schema: { params: memberParams, body: memberChangesBody, querystring: noQuery },
        config: {
          operation: { summary: 'Change the role or the status of a member', data: memberSchema },
          access: changing,
        },
      },
      async (request) => {
        const member = await memberIn(database, request.params);
        // Rejects changes of the caller's own rights. Otherwise the last admin of a merchant could give up these rights
        // by mistake.
        if (member.id === callerOf(request).administratorId)
          throw new Refusal(
            409,
            'You cannot change your own role or status: another merchant-admin must change them',
            [],
            'own_role',
          );
        if (givesRights(request.body)) await requireProof(request, { attempts, clock: context.clock });
        const { role, status, version } = request.body;
        const changes = {
          ...(role === undefined ? {} : { roles: [role] }),
          ...(status === undefined ? {} : { status }),
          ...(version === undefined ? {} : { version }),
        };
        const changed = await recordingRefusals(request, attempts, () =>
          changeAdministrator(context, authorOf(request), member.id, changes),
        );
        return success('Member changed', toMember(changed));
      },
    );

    app.post(
      '/merchants/:id/members/:memberId/links',
      {
        schema: { params: memberParams, querystring: noQuery },
        config: {
          operation: {
            summary: 'Create a link that signs a member in to the console once, within 24 hours',
            status: 201,
            data: linkSchema,
          },
          access: { ...changing, isProven: true },
        },
      },
      async (request, reply) => {
        const { id } = await memberIn(database, request.params);
        const at = origin();
        if (at === null) throw consoleOff();
        const link = await createMemberLink(context, authorOf(request), callerOf(request), { id, origin: at });
        reply.code(201);
        return success('Link created', link);
      },
    );
  };
}

/** Returns a member of a merchant. @throws Refusal if the administrator is not a member of this merchant */
async function memberIn(
  database: RegistryDatabase,
  { id, memberId }: Static<typeof memberParams>,
): Promise<Administrator> {
  const member = await findAdministrator(database, idIn({ id: memberId }, 'Member'), 'Member');
  if (member.merchantId !== id) throw Refusal.notFound('Member');
  return member;
}

function toMember(one: Administrator): Member {
  const { id, name, status, roles, merchantId, subject, createdAt, updatedAt, version } = one;
  return {
    ...{ id, name, status, roles, merchantId: merchantId ?? '', hasSignIn: subject !== null },
    ...{ createdAt, updatedAt, version },
  };
}
