import { errors, type JWTPayload, jwtVerify, type JWTVerifyGetKey } from 'jose';
import { OperatorError } from '../config/operator-error.js';
import { Refusal } from '../rest/refusal.js';
import Type, { Compile } from '../typebox/typebox.js';

/** Production or the sandbox. Records of one environment are never visible in the other. */
export type Environment = 'live' | 'test';

/** The merchant and environment whose records a request may access. */
export interface Tenant {
  readonly merchantId: string;
  readonly environment: Environment;
}

/** Identifies the merchant of a request by the gateway's signature only. */
export interface AssertionVerifier {
  /**
   * @param path the request's path, which determines the upstream that `aud` must name
   * @throws Refusal 403 if the gateway did not sign the assertion, or if it is for another upstream or time
   * @throws OperatorError if the gateway's public keys cannot be fetched
   */
  verify(assertion: string, path: string): Promise<Tenant>;
}

/** How an assertion is verified. */
export interface VerifierOptions {
  /** Finds the gateway's public key for an assertion. */
  readonly keys: JWTVerifyGetKey;
  readonly issuer: string;
  /** The name of the upstream to which the gateway routes a path; null without a route. */
  readonly upstreamOf: (path: string) => string | null;
  /** The single audience that gateways of the former release sign for every upstream; null: not accepted. */
  readonly formerAudience: string | null;
  readonly clock: { now(): number };
}

/** Tolerated difference between the clocks of two machines. */
const clockToleranceSeconds = 5;
/** Longer assertions are rejected before verification; a signed identity has about 400 bytes. */
const maxAssertionLength = 4096;

const claims = Compile(
  Type.Object({
    sub: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
    kid: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
    environment: Type.Enum(['live', 'test']),
  }),
);

/** Creates the verifier of `x-gateway-assertion`, which checks signature, algorithm, issuer, audience and time. */
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
            // Never trust the header's `alg`: `none`, or HMAC with a public key as the secret (CVE-2015-9235).
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

  /** A failed key fetch is an outage: it must not look like a request from a client other than the gateway. */
  async function findKey(...named: Parameters<JWTVerifyGetKey>): Promise<Awaited<ReturnType<JWTVerifyGetKey>>> {
    try {
      return await keys(...named);
    } catch (error) {
      if (error instanceof errors.JWKSNoMatchingKey) throw error;
      throw new OperatorError('The public keys of the gateway could not be fetched.', { cause: error });
    }
  }
}

/** Gateways of this release name the upstream; an `aud` with only the former audience comes from the former release. */
function isFor({ aud = [] }: JWTPayload, upstream: string, formerAudience: string | null): boolean {
  const names = typeof aud === 'string' ? [aud] : aud;
  return names.includes(upstream) || (names.length === 1 && names[0] === formerAudience);
}

function forbidden(): Refusal {
  return new Refusal(403, 'Forbidden');
}
