import { errors, type JWTPayload, jwtVerify, type JWTVerifyGetKey } from 'jose';
import { OperatorError } from '../config/operator-error.js';
import { Refusal } from '../rest/refusal.js';
import Type, { Compile } from '../typebox/typebox.js';

/**
 * The production environment (`live`) or the sandbox (`test`). Records of one environment are never visible in the
 * other.
 */
export type Environment = 'live' | 'test';

/** The merchant and environment whose records a request is allowed to access. */
export interface Tenant {
  readonly merchantId: string;
  readonly environment: Environment;
}

/** Identifies the merchant of a request by the assertion (JWT) that the gateway signed, and by nothing else. */
export interface AssertionVerifier {
  /**
   * Verifies an assertion, and returns its merchant and environment.
   * @param path path of the request, which determines the upstream that the `aud` claim must name
   * @throws Refusal 403 if the gateway did not sign the assertion, if the assertion is expired, malformed or for
   * another upstream, or if the path belongs to no upstream
   * @throws OperatorError if the gateway's public keys cannot be fetched
   */
  verify(assertion: string, path: string): Promise<Tenant>;
}

/** Options of the verifier of assertions (signed JWTs that name the merchant). */
export interface VerifierOptions {
  /** A function that finds the public key with which an assertion must be verified. */
  readonly keys: JWTVerifyGetKey;
  readonly issuer: string;
  /** Returns the name of the upstream to which the gateway routes a path; null if no route matches. */
  readonly upstreamOf: (path: string) => string | null;
  /**
   * The `aud` value that gateways of the previous release use for every upstream; null: assertions of these gateways
   * are rejected.
   */
  readonly formerAudience: string | null;
  readonly clock: { now(): number };
}

/** Tolerated difference between the clocks of two machines. */
const clockToleranceSeconds = 5;
/** Maximum length of an assertion. Longer texts are rejected unverified; a genuine assertion has about 400 bytes. */
const maxAssertionLength = 4096;

const claims = Compile(
  Type.Object({
    sub: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
    kid: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
    environment: Type.Enum(['live', 'test']),
  }),
);

/**
 * Creates the verifier of `x-gateway-assertion` headers. The verifier checks signature, algorithm, issuer, audience,
 * time and the claims about the merchant.
 */
export function createAssertionVerifier(options: VerifierOptions): AssertionVerifier {
  const { keys, issuer, upstreamOf, formerAudience, clock } = options;
  return {
    verify: async (assertion, path) => {
      const upstream = upstreamOf(path);
      if (upstream === null || assertion.length > maxAssertionLength) throw forbidden();
      const payload = await verifiedPayload();
      if (!isFor(payload, upstream, formerAudience) || !claims.Check(payload)) throw forbidden();
      return { merchantId: payload.sub, environment: payload.environment };

      async function verifiedPayload(): Promise<JWTPayload> {
        try {
          const { payload } = await jwtVerify(assertion, findKey, {
            issuer,
            // Never trust `alg` in the JWT header: an attacker could choose `none`, or HMAC with the public key as the
            // secret (CVE-2015-9235).
            algorithms: ['EdDSA', 'ES256'],
            requiredClaims: ['aud', 'sub', 'exp', 'iat'],
            clockTolerance: clockToleranceSeconds,
            currentDate: new Date(clock.now()),
          });
          return payload;
        } catch (error) {
          throw error instanceof errors.JOSEError ? forbidden() : error;
        }
      }
    },
  };

  /**
   * Finds the public key of an assertion. A failed fetch of the keys is an outage, so it must not become a 403. A 403
   * is for requests that bypassed the gateway.
   */
  async function findKey(...named: Parameters<JWTVerifyGetKey>): Promise<Awaited<ReturnType<JWTVerifyGetKey>>> {
    try {
      return await keys(...named);
    } catch (error) {
      if (error instanceof errors.JWKSNoMatchingKey) throw error;
      throw new OperatorError('The public keys of the gateway could not be fetched. Check identity.publicKeysUrl.', {
        cause: error,
      });
    }
  }
}

/**
 * Returns true if the assertion is for this upstream. Gateways of this release name the upstream in `aud`; gateways of
 * the previous release put only `formerAudience` there.
 */
function isFor({ aud = [] }: JWTPayload, upstream: string, formerAudience: string | null): boolean {
  const names = typeof aud === 'string' ? [aud] : aud;
  return names.includes(upstream) || (names.length === 1 && names[0] === formerAudience);
}

function forbidden(): Refusal {
  return new Refusal(403, 'Forbidden');
}
