import Type, { type Static } from '../typebox/typebox.js';
import { noKeyIn, noKeyWords } from './line.js';

/**
 * Permissions of operators for the wallets in the services. The registry grants the permissions. Each authenticated
 * route of the services' API for operators requires one of these permissions.
 */
export const walletPermissions = ['wallets:read', 'wallets:write', 'wallets:fund'] as const;

/** One permission of the operators' API. */
export type WalletPermission = (typeof walletPermissions)[number];

/** The fixed parts of a services token. This JWT authenticates an administrator of the registry to the services. */
export const servicesToken = {
  issuer: 'merchant-gateway-registry',
  audience: 'services',
  /** The type of the JWT, so that no JWT for another purpose passes as a services token. */
  type: 'services-operator+jwt',
  algorithm: 'EdDSA',
  longestSeconds: 300,
} as const;

/** A funding: a movement of money into a wallet. Above a limit, it needs approval. The amount is in minor units. */
export const fundingSchema = Type.Object({
  walletId: Type.String({
    pattern: /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/,
    description: 'a UUID in lower case',
  }),
  environment: Type.Enum(['live', 'test'], { type: 'string', description: 'one of live, test' }),
  currency: Type.String({ pattern: /^[A-Z]{3}$/, description: 'a 3-letter currency code, such as NGN' }),
  amount: Type.Integer({
    minimum: 1,
    maximum: Number.MAX_SAFE_INTEGER,
    description: `a positive whole number of minor units, such as kobo, up to ${Number.MAX_SAFE_INTEGER}`,
  }),
  reference: Type.String({
    pattern: new RegExp(`${noKeyIn}[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$`),
    description: `1 to 100 letters, digits and . _ : / -, beginning with a letter or a digit, ${noKeyWords}`,
  }),
});

/** A funding: a movement of money into a wallet. */
export type Funding = Static<typeof fundingSchema>;

/**
 * The amounts, in minor units by currency, above which funding needs approval. A currency without an entry has the
 * limit 0.
 */
export const fundingLimitsSchema = Type.Record(
  Type.String({ pattern: '^[A-Z]{3}$' }),
  Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
);

/** The amounts, in minor units by currency, above which funding needs approval. */
export type FundingLimits = Readonly<Record<string, number>>;

/** The addresses and CIDRs from which a token is valid. */
export const sourcesSchema = Type.Array(Type.String({ maxLength: 64 }), { minItems: 1, maxItems: 32 });
