import { dateTimeForm } from '../../rest/moment.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { keylessLine } from '../../rest/line.js';
import { withPurpose } from '../../rest/openapi/json-schema.js';
import { pagingQuery } from '../../rest/paging.js';
import { statusTime } from '../fields.js';
import { lastUse } from '../usage/schema.js';

const mostPermissions = 100;
const longestGraceSeconds = 30 * 24 * 60 * 60;

const environment = Type.Enum(['live', 'test'], { description: 'live or test' });
const permissions = Type.Array(Type.String({ maxLength: 128 }), {
  maxItems: mostPermissions,
  minItems: 1,
  description: `a list of 1 to ${mostPermissions} permissions, such as * or payouts:write`,
});
const expiresAt = Type.String({
  pattern: dateTimeForm,
  description: 'a date and time with its zone, such as 2030-01-31T12:00:00Z',
});
const expiresIn = Type.String({
  pattern: /^[1-9][0-9]{0,8}[smhd]$/,
  description: 'a number of seconds, minutes, hours or days, such as 30m, 12h or 90d',
});

/** The fields of a key that occur both in requests and in imports. */
export const keyFields = { environment, permissions, expiresAt, label: keylessLine(100) };

/** The body of `POST /merchants/:id/keys`. */
export const newKeyBody = Type.Object({
  environment,
  permissions: Type.Optional(permissions),
  expiresAt: Type.Optional(expiresAt),
  expiresIn: Type.Optional(expiresIn),
  label: Type.Optional(keyFields.label),
});

/** The body of `POST /keys/:keyId/reset`. Without an expiry, the new key inherits the expiry of the old key. */
export const resetBody = Type.Object({
  graceSeconds: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: longestGraceSeconds,
      description: `a whole number of seconds from 0 to ${longestGraceSeconds} (30 days), for which the old key stays valid`,
    }),
  ),
  expiresAt: Type.Optional(expiresAt),
  expiresIn: Type.Optional(expiresIn),
});

/** The query of `GET /merchants/:id/keys`. */
export const keysQuery = Type.Object({
  ...pagingQuery.properties,
  environment: Type.Optional(Type.Enum(['live', 'test'], { type: 'string', description: 'live or test' })),
  status: Type.Optional(
    Type.Enum(['ACTIVE', 'REVOKED'], {
      type: 'string',
      description: 'ACTIVE (also expired keys) or REVOKED',
    }),
  ),
  label: Type.Optional(
    withPurpose(
      keylessLine(100),
      'Only keys whose label contains this text; upper and lower case are treated as equal',
    ),
  ),
});

/** Which keys of a merchant a list contains. */
export type KeyFilter = Pick<Static<typeof keysQuery>, 'environment' | 'status' | 'label'>;

/** The metadata of a key in the admin API, without the key itself. */
export const apiKeySchema = Type.Object({
  keyId: Type.String(),
  merchantId: Type.String(),
  environment: Type.Enum(['live', 'test']),
  /** The prefix of all keys of this environment. */
  prefix: Type.String(),
  status: Type.String(),
  permissions: Type.Array(Type.String()),
  label: Type.Union([Type.Null(), Type.String()]),
  expiresAt: Type.Union([Type.Null(), Type.String({ format: 'date-time' })]),
  revision: Type.Integer(),
  createdAt: Type.String({ format: 'date-time' }),
  updatedAt: Type.String({ format: 'date-time' }),
  statusChangedAt: statusTime,
});

/** A key in lists, with its creator and its last use. */
export const listedKeySchema = Type.Object({
  ...apiKeySchema.properties,
  // The following fields are optional, because a registry of the previous release does not send them.
  createdBy: Type.Optional(
    Type.Union([Type.Null(), Type.String()], {
      description: 'null: the event that recorded the creation of the key is no longer stored',
    }),
  ),
  lastUse: Type.Optional(lastUse),
});

/** A new key. Only the responses to requests that create or reset a key contain the key itself (`key`). */
export const createdKeySchema = Type.Object({ ...apiKeySchema.properties, key: Type.String() });

/** The response to a reset: the new key, and the key that it replaces. */
export const resetKeySchema = Type.Object({ ...createdKeySchema.properties, replaces: apiKeySchema });

/** A key in the admin API. */
export type ApiKey = Readonly<Static<typeof apiKeySchema>>;

/** A key in a list of the admin API. */
export type ListedKey = Readonly<Static<typeof listedKeySchema>>;

/** The body of a request for a new key. */
export type NewKey = Static<typeof newKeyBody>;

/** The body of a request to reset a key. */
export type KeyReset = Static<typeof resetBody>;
