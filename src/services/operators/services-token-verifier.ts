import { errors, jwtVerify, type JWTVerifyGetKey } from 'jose';
import { actorForm } from '../../rest/actor.js';
import { isIpAddress, isIpRange } from '../../rest/bearer-token.js';
import {
  type Funding,
  type FundingLimits,
  fundingLimitsSchema,
  fundingSchema,
  servicesToken,
  sourcesSchema,
  type WalletPermission,
  walletPermissions,
} from '../../rest/services-token.js';
import Type, { Compile } from '../../typebox/typebox.js';

/** The operator that makes a request. */
export interface Operator {
  readonly name: string;
  /** Id of the administrator in the registry; null for a shared token. */
  readonly administratorId: string | null;
  /**
   * How the operator was authenticated: `bootstrap` for the shared token of the services or of the registry; for an
   * administrator, the token or session at the registry, as `token:ID` or `session:ID`.
   */
  readonly proof: string;
  readonly permissions: readonly WalletPermission[];
  /** Permissions whose use requires a reason (`x-reason`). */
  readonly reasonFor: readonly WalletPermission[];
  /** Amounts, in minor units by currency, above which funding needs approval; null: no amount needs approval. */
  readonly fundingLimits: FundingLimits | null;
  /** The one funding that another administrator has approved; null if there is none. */
  readonly approved: Funding | null;
  /** The addresses and CIDRs from which the token is valid; null for all. */
  readonly sources: readonly string[] | null;
  /**
   * The address of the client for whom the registry relayed the request; null if the registry does not know it. If
   * undefined or missing, the client's address is that of the connection.
   */
  readonly clientAddress?: string | null | undefined;
}

/**
 * Verifies a services token, which is a JWT signed by the registry. Returns the operator that the token authenticates;
 * null for an invalid token.
 */
export type ServicesTokenVerifier = (token: string) => Promise<Operator | null>;

/** Options of the verifier of services tokens. */
export interface ServicesTokenVerifierOptions {
  /** The public keys of the registry. */
  readonly keys: JWTVerifyGetKey;
  readonly clock: { now(): number };
}

/** Tolerated difference between the clocks of the registry and the services. */
const clockToleranceSeconds = 60;
/**
 * Maximum length of a token. A token with 32 addresses and a funding limit for every currency of ISO 4217 has up to
 * 9,000 characters. The limit is larger, but below Node's limit of 16 KiB for the header section of a request.
 */
const longestToken = 12_288;
const mostPermissions = 100;
const longestAddress = 45;

const permissionList = Type.Array(Type.String({ maxLength: 64 }), { maxItems: mostPermissions });
const claims = Compile(
  Type.Object({
    sub: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
    name: Type.String({ pattern: actorForm }),
    proof: Type.String({ pattern: '^(?:bootstrap|(?:token|session):[A-Za-z0-9_-]{1,64})$' }),
    jti: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
    permissions: permissionList,
    reasonFor: permissionList,
    // Optional, because a registry of an earlier release omits these claims.
    fundingLimits: Type.Optional(fundingLimitsSchema),
    approved: Type.Optional(fundingSchema),
    sources: Type.Optional(sourcesSchema),
    clientAddress: Type.Optional(Type.Union([Type.Null(), Type.String({ maxLength: longestAddress })])),
  }),
);

/**
 * Creates the verifier of services tokens. It checks signature, algorithm, type, issuer, audience and time. The public
 * keys come from files, so verification needs no connection to the registry.
 */
export function createServicesTokenVerifier({ keys, clock }: ServicesTokenVerifierOptions): ServicesTokenVerifier {
  return async (token) => {
    if (token.length > longestToken) return null;
    try {
      const { payload } = await jwtVerify(token, keys, {
        // Never trust `alg` in the JWT header: an attacker could choose `none`, or HMAC with the public key as the
        // secret (CVE-2015-9235).
        algorithms: [servicesToken.algorithm],
        typ: servicesToken.type,
        issuer: servicesToken.issuer,
        audience: servicesToken.audience,
        requiredClaims: ['sub', 'exp', 'iat', 'jti'],
        // With this option, jose also rejects a token whose `iat` is in the future.
        maxTokenAge: servicesToken.longestSeconds,
        clockTolerance: clockToleranceSeconds,
        currentDate: new Date(clock.now()),
      });
      if (payload.aud !== servicesToken.audience || !claims.Check(payload)) return null;
      const { sub, name, proof, sources = null, clientAddress } = payload;
      if (sources?.every(isIpRange) === false) return null;
      if (typeof clientAddress === 'string' && !isIpAddress(clientAddress)) return null;
      return {
        ...{ name, proof, administratorId: proof === 'bootstrap' ? null : sub },
        permissions: known(payload.permissions),
        reasonFor: known(payload.reasonFor),
        fundingLimits: payload.fundingLimits ?? null,
        approved: payload.approved ?? null,
        ...{ sources, clientAddress },
      };
    } catch (error) {
      if (error instanceof errors.JOSEError) return null;
      throw error;
    }
  };
}

/**
 * Returns the permissions that this release knows. A registry of a later release can sign further permissions, which
 * are ignored.
 */
function known(names: readonly string[]): WalletPermission[] {
  return walletPermissions.filter((permission) => names.includes(permission));
}
