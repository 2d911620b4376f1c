import Type, { type Static } from '../../typebox/typebox.js';
import { identifierForm } from '../fields.js';
import { keyFields } from '../keys/schema.js';
import { merchantFields } from '../merchants/schema.js';

/** The most entries that are imported at once, in one change. */
export const mostEntries = 500;

const identifier = Type.String({ pattern: identifierForm, description: '1 to 64 letters, digits, - and _' });

/** A merchant to import. Nothing has a default: what is left out would open more than is meant. */
export const merchantEntrySchema = Type.Object({
  type: Type.Literal('merchant', { description: 'merchant' }),
  merchantId: identifier,
  name: merchantFields.name,
  status: merchantFields.status,
  goLive: merchantFields.goLive,
  ipAllowlist: merchantFields.ipAllowlist,
  originAllowlist: merchantFields.originAllowlist,
  confirm: Type.Optional(merchantFields.confirm),
});

/** A key to import, by its hash. Without a `keyId` it gets one. */
export const keyEntrySchema = Type.Object({
  type: Type.Optional(Type.Literal('key', { description: 'key or merchant' })),
  lookupId: Type.String({
    pattern: /^[0-9a-fA-F]{64}$/,
    description: '64 hexadecimal digits: the SHA-256 of the whole key, or its HMAC-SHA-256 with the pepper',
  }),
  merchantId: identifier,
  environment: keyFields.environment,
  status: Type.Enum(['ACTIVE', 'INACTIVE', 'REVOKED'], { description: 'ACTIVE, INACTIVE or REVOKED' }),
  permissions: keyFields.permissions,
  expiresAt: Type.Optional(
    Type.Union([Type.Null(), keyFields.expiresAt], {
      description: 'null, or a date and time with its zone, such as 2030-01-31T12:00:00Z',
    }),
  ),
  label: Type.Optional(
    Type.Union([Type.Null(), keyFields.label], { description: 'null, or a text of 1 to 100 characters on one line' }),
  ),
  keyId: Type.Optional(identifier),
});

const entries = { minItems: 1, maxItems: mostEntries, description: `a list of 1 to ${mostEntries} entries` };

/** The body of `POST /imports`. Each entry is checked by itself, so that all that is wrong can be told. */
export const importBody = Type.Object({ entries: Type.Array(Type.Unknown(), entries) });

/** The body of `POST /imports/check`. */
export const checkBody = Type.Object({
  ...importBody.properties,
  merchants: Type.Optional(
    Type.Array(identifier, {
      maxItems: mostEntries,
      description: `a list of at most ${mostEntries} ids of merchants that will be imported before`,
    }),
  ),
});

const described = Type.Array(Type.Union([keyEntrySchema, merchantEntrySchema]), entries);

/** Both bodies as they are described. */
export const importBodies = {
  import: Type.Object({ entries: described }),
  check: Type.Object({ ...checkBody.properties, entries: described }),
};

const counts = Type.Object({ merchants: Type.Integer(), keys: Type.Integer() });

/** What a check finds. */
export const checkedSchema = Type.Object({
  /** What is not in the registry yet. */
  created: counts,
  /** What is in it already, with the same content. */
  present: counts,
  problems: Type.Array(
    Type.Object({
      /** Of the entry, from 0. */
      index: Type.Integer(),
      /** The field, or empty for the entry as a whole. */
      path: Type.String(),
      message: Type.String(),
    }),
  ),
});

/** What an import did. */
export const importedSchema = Type.Object({
  created: counts,
  present: counts,
  /** Of the change; null where everything was there already. */
  revision: Type.Union([Type.Null(), Type.Integer()]),
  /** False where it could not be written to the gateways' store yet. It is kept, and written as soon as possible. */
  projected: Type.Boolean(),
});

/** How many of each kind. */
export type Counts = Static<typeof counts>;

/** What a check finds. */
export type Checked = Static<typeof checkedSchema>;
