import { actorForm } from '../../rest/actor.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { administratorSchema } from '../administrators/schema.js';

/** The roles of members. `roles` in `administrators/roles.ts` lists the permissions of each role. */
export const memberRoles = ['merchant-admin', 'merchant-viewer'] as const;

const role = Type.Enum([...memberRoles], { description: 'merchant-admin or merchant-viewer' });

/** A member of a merchant: an administrator who sees only this merchant. */
export const memberSchema = Type.Object({
  id: Type.String(),
  name: Type.String(),
  status: Type.String({ description: 'ACTIVE or DISABLED' }),
  roles: Type.Array(Type.String()),
  merchantId: Type.String(),
  hasSignIn: Type.Boolean({
    description: 'true: the member signs in at the OpenID provider; false: the member uses links or tokens',
  }),
  ...Type.Pick(administratorSchema, ['createdAt', 'updatedAt', 'version']).properties,
});

/** A member of a merchant in the admin API. */
export type Member = Static<typeof memberSchema>;

/** The query of `GET /merchants/:id/members`. */
export const membersQuery = Type.Object({
  ...pagingQuery.properties,
  status: Type.Optional(Type.Enum(['ACTIVE', 'DISABLED'], { type: 'string', description: 'ACTIVE or DISABLED' })),
});

/** The body of `POST /merchants/:id/members`. */
export const newMemberBody = Type.Object({
  name: Type.String({
    pattern: actorForm,
    description:
      'a name of 1 to 64 letters, digits and . _ @ : + -, beginning with a letter or a digit, such as ada@example.com',
    examples: ['ada@example.com'],
  }),
  role,
});

/** The body of `PATCH /merchants/:id/members/:memberId`: the fields to change. */
export const memberChangesBody = Type.Object(
  {
    role: Type.Optional(role),
    status: Type.Optional(Type.Enum(['ACTIVE', 'DISABLED'], { description: 'ACTIVE or DISABLED' })),
    version: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: Number.MAX_SAFE_INTEGER,
        description:
          'a whole number: the version on which the change is based; nothing is changed if the member has another version',
      }),
    ),
  },
  { minProperties: 1 },
);
