import { SignJWT } from 'jose';
import type { JSONWebKeySet } from 'jose';
import { LRUCache } from 'lru-cache';
import { growingTo } from '../../gateway/growing-to.js';
import type { CallerIdentity, Clock } from '../../gateway/ports.js';
import type { Credential } from '../../policy/facts.js';
import type { SigningKey } from './signing-keys.js';

/** How assertions are made. */
export interface SignedIdentityOptions {
  readonly signingKey: SigningKey;
  readonly publicKeys: JSONWebKeySet;
  readonly issuer: string;
  /** A second audience of every assertion; null: the upstream alone. */
  readonly audience: string | null;
  /** How long an upstream may believe an assertion. */
  readonly lifetimeSeconds: number;
  /** How many keys' assertions are held for each upstream. */
  readonly maxEntries: number;
  readonly clock: Clock;
}

interface Held {
  readonly credential: Pick<Credential, 'merchantId' | 'environment'>;
  readonly assertion: Promise<string>;
  /** From then on a new one is made, in milliseconds since 1970. */
  readonly renewAt: number;
}

/**
 * Signs who calls as a JWT: `iss aud sub iat exp`, `kid` with the id of the merchant's key, and `environment`. One is
 * made for a key and an upstream and used again for half of its lifetime, so that a request costs no signature.
 */
export class SignedIdentity implements CallerIdentity {
  readonly publicKeys: JSONWebKeySet;
  readonly #options: SignedIdentityOptions;
  /** By the upstream's name, and then by the id of the key. */
  readonly #held = new Map<string, LRUCache<string, Held>>();

  constructor(options: SignedIdentityOptions) {
    this.#options = options;
    this.publicKeys = options.publicKeys;
  }

  /** @throws an error of the signature, which is a request that failed, never one that goes without its assertion */
  assertionFor(credential: Credential, upstreamName: string): Promise<string> {
    const { keyId, merchantId, environment } = credential;
    const now = this.#options.clock.now();
    const heldForUpstream = this.#heldFor(upstreamName);
    const held = heldForUpstream.get(keyId);
    const isOfThisCaller = held?.credential.merchantId === merchantId && held.credential.environment === environment;
    // A clock that was set back must not make an assertion outlive its end.
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
      held = new LRUCache(growingTo(this.#options.maxEntries));
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
