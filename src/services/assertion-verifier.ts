import { errors, type JWTPayload, jwtVerify, type JWTVerifyGetKey } from 'jose';
import { OperatorError } from '../config/operator-error.js';
import { Refusal } from '../rest/refusal.js';
import Type, { Compile } from '../typebox/typebox.js';

/** Production or the sandbox. Records of one are never seen from the other. */
export type Environment = 'live' | 'test';

/** Whose records a request may see. */
export interface Tenant {
  readonly merchantId: string;
  readonly environment: Environment;
}

/** Says who calls, by the gateway's signature alone. */
export interface AssertionVerifier {
  /**
   * @param path the request's, which tells the upstream that the assertion must be for
   * @throws Refusal 403 for whatever the gateway did not sign, or not for this upstream, or not for now
   * @throws OperatorError when the gateway's public keys cannot be had
   */
  verify(assertion: string, path: string): Promise<Tenant>;
}

/** What an assertion must be. */
export interface VerifierOptions {
  /** Finds the gateway's public key that an assertion names. */
  readonly keys: JWTVerifyGetKey;
  readonly issuer: string;
  /** The name of the upstream that the gateway asks for a path; null: it asks none. */
  readonly upstreamOf: (path: string) => string | null;
  /** The one audience in what gateways of the former release sign, whatever the upstream; null: it is not accepted. */
  readonly formerAudience: string | null;
  readonly clock: { now(): number };
}

/** Clocks of two machines differ. */
const clockToleranceSeconds = 5;
/** A signed identity is some 400 bytes; nothing longer is worth a look. */
const maxAssertionLength = 4096;

const claims = Compile(
  Type.Object({
    sub: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
    kid: Type.String({ pattern: '^[A-Za-z0-9_-]{1,64}$' }),
    environment: Type.Enum(['live', 'test']),
  }),
);

/** Makes the verifier of `x-gateway-assertion`: signature, algorithm, issuer, audience and time. */
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
            // Never what the header asks for: `none`, or a public key used as an HMAC secret (CVE-2015-9235).
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

  /** Keys that cannot be fetched are an outage: it must not look like a caller who is not the gateway. */
  async function findKey(...named: Parameters<JWTVerifyGetKey>): Promise<Awaited<ReturnType<JWTVerifyGetKey>>> {
    try {
      return await keys(...named);
    } catch (error) {
      if (error instanceof errors.JWKSNoMatchingKey) throw error;
      throw new OperatorError('The public keys of the gateway cannot be had.', { cause: error });
    }
  }
}

/** A gateway of this release names the upstream, so the former audience alone proves one of the former release. */
function isFor({ aud = [] }: JWTPayload, upstream: string, formerAudience: string | null): boolean {
  const names = typeof aud === 'string' ? [aud] : aud;
  return names.includes(upstream) || (names.length === 1 && names[0] === formerAudience);
}

function forbidden(): Refusal {
  return new Refusal(403, 'Forbidden');
}
