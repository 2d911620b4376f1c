/**
 * What an operator may do with the wallets of the services. The registry decides who has which of these, and the
 * services require one for each route.
 */
export const walletPermissions = ['wallets:read', 'wallets:write', 'wallets:fund'] as const;

/** One permission of the operators' API. */
export type WalletPermission = (typeof walletPermissions)[number];

/** The fixed parts of a services token: a JWT by which the services know an administrator of the registry. */
export const servicesToken = {
  issuer: 'merchant-gateway-registry',
  audience: 'services',
  /** The type of the JWT, so that no JWT for another purpose passes as a services token. */
  type: 'services-operator+jwt',
  algorithm: 'EdDSA',
  longestSeconds: 300,
} as const;
