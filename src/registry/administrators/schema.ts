import { keylessLine, noKeyIn, noKeyWords } from '../../rest/line.js';
import { actorForm } from '../../rest/actor.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { identifierForm } from '../fields.js';
import { roleNames } from './roles.js';

const moment = Type.String({ format: 'date-time' });
const orNull = <Schema extends ReturnType<typeof Type.String>>(schema: Schema) => Type.Union([Type.Null(), schema]);
const longestUrl = 500;

const name = Type.String({
  pattern: actorForm,
  description:
    'a name of 1 to 64 letters, digits and . _ @ : + -, beginning with a letter or a digit, such as ada or ci-deploy',
  examples: ['ada'],
});
const roles = Type.Array(Type.Enum([...roleNames]), {
  minItems: 1,
  maxItems: roleNames.length,
  description: `a list of one or more of: ${roleNames.join(', ')}`,
});
const administratorId = Type.Optional(
  Type.String({ pattern: identifierForm, description: 'the id of an administrator; default: the caller' }),
);
const merchantId = Type.String({ pattern: identifierForm, description: 'the id of a merchant' });
const text = (what: string) =>
  Type.String({
    pattern: new RegExp(`${noKeyIn}[!-~]+$`),
    maxLength: longestUrl,
    description: `${what}, as 1 to ${longestUrl} visible ASCII characters without spaces, and ${noKeyWords}`,
  });
const issuer = text('the issuer of the OpenID provider');
const subject = text('the subject (sub) of the person at the OpenID provider');

/** An administrator, as the admin API shows it. */
export const administratorSchema = Type.Object({
  id: Type.String(),
  name: Type.String(),
  kind: Type.String({ description: 'person or machine' }),
  status: Type.String({ description: 'ACTIVE or DISABLED' }),
  roles: Type.Array(Type.String()),
  merchantId: orNull(Type.String()),
  issuer: orNull(Type.String()),
  subject: orNull(Type.String()),
  createdAt: moment,
  updatedAt: moment,
  version: Type.Integer(),
});

/** An administrator in the admin API. */
export type Administrator = Static<typeof administratorSchema>;

/** The body of `POST /administrators`. */
export const newAdministratorBody = Type.Object({
  name,
  kind: Type.Optional(Type.Enum(['person', 'machine'], { description: 'person or machine' })),
  roles,
  merchantId: Type.Optional(merchantId),
  issuer: Type.Optional(issuer),
  subject: Type.Optional(subject),
});

/** The body of `PATCH /administrators/:id`: the fields to change. */
export const administratorChangesBody = Type.Object(
  {
    status: Type.Optional(Type.Enum(['ACTIVE', 'DISABLED'], { description: 'ACTIVE or DISABLED' })),
    roles: Type.Optional(roles),
    issuer: Type.Optional(issuer),
    subject: Type.Optional(subject),
    version: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: Number.MAX_SAFE_INTEGER,
        description:
          'a whole number: the version on which the change is based; nothing is changed if the administrator has another version',
      }),
    ),
  },
  { minProperties: 1 },
);

/**
 * Whether a change of an administrator or a member could give rights: true unless the change only disables. To disable
 * needs no recent proof of identity, so that a compromised account can be stopped at once.
 */
export function givesRights(changes: { readonly status?: 'ACTIVE' | 'DISABLED' }): boolean {
  const others = Object.keys(changes).filter((field) => field !== 'status' && field !== 'version');
  return changes.status !== 'DISABLED' || others.length > 0;
}

/** The query of `GET /administrators`. */
export const administratorsQuery = Type.Object({
  ...pagingQuery.properties,
  status: Type.Optional(Type.Enum(['ACTIVE', 'DISABLED'], { type: 'string', description: 'ACTIVE or DISABLED' })),
  merchantId: Type.Optional(merchantId),
});

/** A token's metadata in the admin API, without the token itself. */
export const tokenSchema = Type.Object({
  id: Type.String(),
  administratorId: Type.String(),
  name: Type.String(),
  kind: Type.String({ description: '`session` if a sign-in created the token, otherwise `token`' }),
  roles: Type.Union([Type.Null(), Type.Array(Type.String())], {
    description: 'null: all roles that the administrator has',
  }),
  sources: Type.Union([Type.Null(), Type.Array(Type.String())]),
  createdAt: moment,
  expiresAt: moment,
  revokedAt: orNull(moment),
  lastUsedAt: orNull(moment),
  lastSource: orNull(Type.String()),
});

/** A token's metadata in the admin API. */
export type AdministratorToken = Static<typeof tokenSchema>;

/** The response to the creation of a token. No other response contains the token itself (`token`). */
export const createdTokenSchema = Type.Object({ ...tokenSchema.properties, token: Type.String() });

const longestLifeSeconds = 366 * 24 * 60 * 60;

/** The body of `POST /tokens`. */
export const newTokenBody = Type.Object({
  name: keylessLine(64, 'nightly import'),
  administratorId,
  roles: Type.Optional(roles),
  sources: Type.Optional(
    Type.Array(Type.String({ maxLength: 64 }), {
      minItems: 1,
      maxItems: 32,
      description: 'a list of 1 to 32 IP addresses and CIDRs from which the token is valid',
    }),
  ),
  expiresInSeconds: Type.Optional(
    Type.Integer({
      minimum: 60,
      maximum: longestLifeSeconds,
      description: `a whole number of seconds from 60 to ${longestLifeSeconds}; default: 90 days`,
    }),
  ),
});

/** The query of a list of an administrator's credentials: `GET /tokens` and `GET /sessions`. */
export const credentialsQuery = Type.Object({ ...pagingQuery.properties, administratorId });

/** The caller's identity, roles and permissions. */
export const identitySchema = Type.Object({
  name: Type.String(),
  administratorId: orNull(Type.String()),
  proof: Type.String({
    description: 'the credential of the request: bootstrap (the shared token), token:ID or session:ID',
  }),
  roles: Type.Array(Type.String()),
  permissions: Type.Array(Type.String()),
  merchantId: orNull(Type.String()),
  expiresAt: orNull(moment),
  // The following fields are optional, because a registry of the previous release does not send them.
  address: Type.Optional(orNull(Type.String({ description: 'the address from which the request came' }))),
  merchantApi: Type.Optional(
    Type.Object(
      { liveUrl: orNull(Type.String()), testUrl: orNull(Type.String()), caFile: orNull(Type.String()) },
      {
        description:
          'registry.console.merchantApi: the URLs at which merchants reach the gateways, and the path of the CA certificate (caFile); each is null if it is not set',
      },
    ),
  ),
  hasSignIn: Type.Optional(Type.Boolean({ description: 'true: people sign in with an OpenID provider' })),
  hasWallets: Type.Optional(Type.Boolean({ description: 'true: the console shows the wallets of the services' })),
  session: Type.Optional(
    Type.Union([
      Type.Null(),
      Type.Object({
        id: Type.String(),
        createdAt: moment,
        idleEndsAt: moment,
        provenAt: orNull(moment),
        provenUntil: orNull(moment),
      }),
    ]),
  ),
});

/** A role and its permissions. */
export const roleSchema = Type.Object({
  name: Type.String(),
  description: Type.String(),
  isOfMember: Type.Boolean({
    description: 'true: the role is for members of one merchant, who see only that merchant',
  }),
  permissions: Type.Array(Type.String()),
});
