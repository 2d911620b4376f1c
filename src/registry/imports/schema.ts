import Type, { type Static } from '../../typebox/typebox.js';
import { identifierForm } from '../fields.js';
import { keyFields } from '../keys/schema.js';
import { merchantFields } from '../merchants/schema.js';

/** Maximum number of entries per import. Each import is one change. */
export const mostEntries = 500;

const identifier = Type.String({ pattern: identifierForm, description: '1 to 64 letters, digits, - and _' });

/** A merchant to import. Fields have no defaults, because a default could grant more than intended. */
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

/** A key to import, identified by its hash. If `keyId` is missing, the import generates an id. */
export const keyEntrySchema = Type.Object({
  type: Type.Optional(Type.Literal('key', { description: 'key, or merchant if the entry describes a merchant' })),
  lookupId: Type.String({
    pattern: /^[0-9a-fA-F]{64}$/,
    description:
      '64 hexadecimal digits: the SHA-256 of the whole key or, with keys.pepperFile, its HMAC-SHA-256 with that pepper',
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

/**
 * The body of `POST /imports`. The schema accepts any entry: the code checks entries one by one, to report all
 * problems.
 */
export const importBody = Type.Object({ entries: Type.Array(Type.Unknown(), entries) });

/** The body of `POST /imports/check`. */
export const checkBody = Type.Object({
  ...importBody.properties,
  merchants: Type.Optional(
    Type.Array(identifier, {
      maxItems: mostEntries,
      description: `a list of at most ${mostEntries} ids of merchants that you will import before these entries`,
    }),
  ),
});

const described = Type.Array(Type.Union([keyEntrySchema, merchantEntrySchema]), entries);

/** The bodies of both import requests, with the schemas of the entries, for the OpenAPI description. */
export const importBodies = {
  import: Type.Object({ entries: described }),
  check: Type.Object({ ...checkBody.properties, entries: described }),
};

const counts = Type.Object({ merchants: Type.Integer(), keys: Type.Integer() });

/** The result of the check of an import. */
export const checkedSchema = Type.Object({
  /** Number of entries that the import would create. */
  created: counts,
  /** Number of entries that exist already, with the same content. */
  present: counts,
  problems: Type.Array(
    Type.Object({
      /** Index of the entry, from 0. */
      index: Type.Integer(),
      /** The field with the problem; empty if the problem concerns the whole entry. */
      path: Type.String(),
      message: Type.String(),
    }),
  ),
});

/** Result of an import. */
export const importedSchema = Type.Object({
  created: counts,
  present: counts,
  /** Revision (number) of the change; null if all entries were already present. */
  revision: Type.Union([Type.Null(), Type.Integer()]),
  /**
   * False if some of the entries, created or present, might not yet be in the store from which gateways read. The
   * registry writes them to the store as soon as possible.
   */
  projected: Type.Boolean(),
});

/** Number of merchants and of keys. */
export type Counts = Static<typeof counts>;

/** The result of the check of an import. */
export type Checked = Static<typeof checkedSchema>;
