import { SignJWT } from 'jose';
import type { JSONWebKeySet } from 'jose';
import { LRUCache } from 'lru-cache';
import { lruOptions } from '../../gateway/growing-to.js';
import type { CallerIdentity, Clock } from '../../gateway/ports.js';
import type { Credential } from '../../policy/facts.js';
import type { SigningKey } from './signing-keys.js';

/** Options of the signed caller identity, a JWT that upstreams receive with each request. */
export interface SignedIdentityOptions {
  readonly signingKey: SigningKey;
  readonly publicKeys: JSONWebKeySet;
  readonly issuer: string;
  /** A second audience (claim `aud`) of every JWT; null: the upstream is the only audience. */
  readonly audience: string | null;
  /** The lifetime of a JWT, from `iat` to `exp`. Upstreams must reject an expired JWT. */
  readonly lifetimeSeconds: number;
  /** The maximum number of cached JWTs for each upstream. A JWT is cached for each merchant key. */
  readonly maxEntries: number;
  readonly clock: Clock;
}

interface Held {
  readonly credential: Pick<Credential, 'merchantId' | 'environment'>;
  readonly assertion: Promise<string>;
  /** When the cached JWT is replaced by a new one, in milliseconds since 1970. */
  readonly renewAt: number;
}

/**
 * Signs the caller's identity as a JWT with the claims `iss`, `aud`, `sub`, `iat`, `exp`, `kid` and `environment`. The
 * claim `kid` is the id of the merchant's key. Signing is slow, so a JWT is reused for the same key and upstream during
 * the first half of its lifetime.
 */
export class SignedIdentity implements CallerIdentity {
  readonly publicKeys: JSONWebKeySet;
  readonly #options: SignedIdentityOptions;
  /** Cached JWTs by upstream name, then by key id. */
  readonly #held = new Map<string, LRUCache<string, Held>>();

  constructor(options: SignedIdentityOptions) {
    this.#options = options;
    this.publicKeys = options.publicKeys;
  }

  /**
   * Returns the caller's JWT for an upstream, cached or newly signed.
   * @throws the error of signing; the request then fails, because the gateway never forwards a request without its JWT
   */
  assertionFor(credential: Credential, upstreamName: string): Promise<string> {
    const { keyId, merchantId, environment } = credential;
    const now = this.#options.clock.now();
    const heldForUpstream = this.#heldFor(upstreamName);
    const held = heldForUpstream.get(keyId);
    const isOfThisCaller = held?.credential.merchantId === merchantId && held.credential.environment === environment;
    // If the system clock was set back, `renewAt` is more than half a lifetime ahead. Upstreams with a correct clock
    // could then get the JWT after its expiry, so the JWT is replaced.
    const isYoung = held !== undefined && now < held.renewAt && held.renewAt - now <= this.#renewalMilliseconds;
    if (isOfThisCaller && isYoung) return held.assertion;

    const assertion = this.#sign(credential, upstreamName, now);
    const renewAt = now + this.#renewalMilliseconds;
    heldForUpstream.set(keyId, { credential: { merchantId, environment }, assertion, renewAt });
    assertion.catch(() => heldForUpstream.delete(keyId));
    return assertion;
  }

  #heldFor(upstreamName: string): LRUCache<string, Held> {
    let held = this.#held.get(upstreamName);
    if (held === undefined) {
      held = new LRUCache(lruOptions(this.#options.maxEntries));
      this.#held.set(upstreamName, held);
    }
    return held;
  }

  get #renewalMilliseconds(): number {
    return this.#options.lifetimeSeconds * 500;
  }

  #sign({ keyId, merchantId, environment }: Credential, upstreamName: string, now: number): Promise<string> {
    const { signingKey, issuer, audience, lifetimeSeconds } = this.#options;
    const issuedAt = Math.floor(now / 1000);
    return new SignJWT({ kid: keyId, environment })
      .setProtectedHeader({ alg: signingKey.algorithm, kid: signingKey.keyId, typ: 'JWT' })
      .setIssuer(issuer)
      .setAudience(audience === null ? upstreamName : [upstreamName, audience])
      .setSubject(merchantId)
      .setIssuedAt(issuedAt)
      .setExpirationTime(issuedAt + lifetimeSeconds)
      .sign(signingKey.privateKey);
  }
}
