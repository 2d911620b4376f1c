import { momentForm } from '../../rest/moment.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { keylessLine } from '../../rest/line.js';

const mostPermissions = 100;
const longestGraceSeconds = 30 * 24 * 60 * 60;

const environment = Type.Enum(['live', 'test'], { description: 'live or test' });
const permissions = Type.Array(Type.String({ maxLength: 128 }), {
  maxItems: mostPermissions,
  minItems: 1,
  description: `a list of 1 to ${mostPermissions} permissions, such as * or payouts:write`,
});
const expiresAt = Type.String({
  pattern: momentForm,
  description: 'a date and time with its zone, such as 2030-01-31T12:00:00Z',
});
const expiresIn = Type.String({
  pattern: /^[1-9][0-9]{0,8}[smhd]$/,
  description: 'a number of seconds, minutes, hours or days, such as 90d',
});

/** What may be said of a key, wherever it comes from. */
export const keyFields = { environment, permissions, expiresAt, label: keylessLine(100) };

/** The body of `POST /merchants/:id/keys`. */
export const newKeyBody = Type.Object({
  environment,
  permissions: Type.Optional(permissions),
  expiresAt: Type.Optional(expiresAt),
  expiresIn: Type.Optional(expiresIn),
  label: Type.Optional(keyFields.label),
});

/** The body of `POST /keys/:keyId/reset`. Without an expiry, the new key has that of the old one. */
export const resetBody = Type.Object({
  graceSeconds: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: longestGraceSeconds,
      description: `a whole number of seconds from 0 to ${longestGraceSeconds}, which is 30 days`,
    }),
  ),
  expiresAt: Type.Optional(expiresAt),
  expiresIn: Type.Optional(expiresIn),
});

/** A key, as administrators see it. Nothing of its secret part. */
export const apiKeySchema = Type.Object({
  keyId: Type.String(),
  merchantId: Type.String(),
  environment: Type.Enum(['live', 'test']),
  /** What every key of its environment begins with. */
  prefix: Type.String(),
  status: Type.String(),
  permissions: Type.Array(Type.String()),
  label: Type.Union([Type.Null(), Type.String()]),
  expiresAt: Type.Union([Type.Null(), Type.String({ format: 'date-time' })]),
  revision: Type.Integer(),
  createdAt: Type.String({ format: 'date-time' }),
  updatedAt: Type.String({ format: 'date-time' }),
});

/** The one answer that holds the key itself. */
export const shownKeySchema = Type.Object({ ...apiKeySchema.properties, key: Type.String() });

/** The answer to a reset: the new key, and which one it replaces. */
export const resetKeySchema = Type.Object({ ...shownKeySchema.properties, replaces: apiKeySchema });

/** A key, as administrators see it. */
export type ApiKey = Readonly<Static<typeof apiKeySchema>>;

/** What a new key is made of. */
export type NewKey = Static<typeof newKeyBody>;

/** How a key is reset. */
export type KeyReset = Static<typeof resetBody>;
