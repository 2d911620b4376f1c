import type * as OpenId from 'openid-client';
import type { ClaimRules } from './claims.js';

/** The verified claims of a person, from the ID token and the UserInfo response. */
export type Claims = Readonly<Record<string, unknown>> & { readonly iss: string; readonly sub: string };

/** Options of the OpenID provider (`registry.oidc`), with the client secret instead of the path of its file. */
export interface ProviderOptions {
  readonly issuer: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Scopes, separated by spaces. */
  readonly scope: string;
  readonly rules: ClaimRules;
}

/**
 * The codes of a sign-in with a device code (RFC 8628). The person needs `userCode` and one of the two URIs; the
 * registry stores `deviceCode`.
 */
export interface DeviceCode {
  readonly deviceCode: string;
  readonly userCode: string;
  readonly verificationUri: string;
  readonly verificationUriComplete: string | null;
  readonly expiresInSeconds: number;
  readonly intervalSeconds: number;
}

/** A verified person. `refreshToken` is null if the provider issued no refresh token. */
export interface Verified {
  readonly claims: Claims;
  readonly refreshToken: string | null;
}

/** The secrets of one sign-in in a browser. The provider's response must match these secrets. */
export interface BrowserSecrets {
  readonly state: string;
  readonly nonce: string;
  /** The code verifier of PKCE (RFC 7636). */
  readonly verifier: string;
}

/** Thrown if the provider did not prove an identity. Events can contain `reason`, which is one word without secrets. */
export class ProviderError extends Error {
  /**
   * @param kind `unavailable`: no usable response, or the provider rejects the registry's own configuration.
   *   `refused`: the provider refused the sign-in; `reason` is the OAuth error code. `invalid`: the response does not
   *   prove an identity.
   */
  constructor(
    readonly kind: 'unavailable' | 'refused' | 'invalid',
    readonly reason: string,
    options?: ErrorOptions,
  ) {
    super(`the OpenID provider: ${kind} (${reason})`, options);
  }
}

const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code';
const timeoutSeconds = 5;
/** How long the discovered metadata stays cached, in milliseconds. openid-client caches signing keys itself. */
const metadataMilliseconds = 60 * 60 * 1000;
/**
 * The accepted signature algorithms of ID tokens, all asymmetric. With a symmetric algorithm, the client secret would
 * be the signing key, so anyone who knows it could forge tokens.
 */
const asymmetric = /^(?:RS|PS|ES)(?:256|384|512)$|^(?:EdDSA|Ed25519)$/;
const longestText = 4096;
/** If a person's last authentication at the provider is older than this, the console requires a new authentication. */
const longestProofSeconds = 8 * 60 * 60;

/** A client of one OpenID provider. Loads openid-client and the provider's metadata at the first sign-in. */
export class IdentityProvider {
  readonly options: ProviderOptions;
  readonly #now: () => number;
  #discovered: { readonly at: number; readonly config: OpenId.Configuration } | null = null;

  constructor(options: ProviderOptions, now: () => number) {
    this.options = options;
    this.#now = now;
  }

  /** Requests a device code (RFC 8628). @throws ProviderError */
  async startDevice(): Promise<DeviceCode> {
    return this.#call(async (client, config) => {
      const begun = await client.initiateDeviceAuthorization(config, { scope: this.options.scope });
      const { verification_uri: uri, verification_uri_complete: complete = null } = begun;
      if (![uri, complete ?? uri].every(isWebAddress) || begun.user_code.length > 64) {
        throw new ProviderError('invalid', 'device_authorization_response');
      }
      return {
        ...{ deviceCode: begun.device_code, userCode: begun.user_code },
        ...{ verificationUri: uri, verificationUriComplete: complete, expiresInSeconds: begun.expires_in },
        intervalSeconds: begun.interval ?? 5,
      };
    });
  }

  /** Asks the provider once, and returns the person if they have approved the sign-in. @throws ProviderError if not */
  async redeemDevice(deviceCode: string): Promise<Verified> {
    return this.#call(async (client, config) => {
      const tokens = await client.genericGrantRequest(config, deviceGrant, { device_code: deviceCode });
      const idToken = tokens.claims();
      if (idToken === undefined) throw new ProviderError('invalid', 'no_id_token');
      return this.#verified(client, config, tokens, idToken.sub);
    });
  }

  /**
   * Returns the URL at which a person signs in with a browser (authorization code flow with PKCE).
   * @param isProof whether the provider must authenticate the person again, even if they are signed in there
   * @throws ProviderError
   */
  async browserUrl(redirectUri: string, { state, nonce, verifier }: BrowserSecrets, isProof: boolean): Promise<string> {
    return this.#call(async (client, config) => {
      const url = client.buildAuthorizationUrl(config, {
        ...{ redirect_uri: redirectUri, state, nonce },
        // Leaves out the scope that requests a refresh token, because a session of the console ends within hours.
        scope: this.options.scope.split(' ').filter(isOnline).join(' '),
        ...{ code_challenge: await client.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256' },
        // `max_age` limits the time since the person last authenticated. It also makes the provider return the time of
        // that authentication (`auth_time`).
        ...(isProof ? { prompt: 'login', max_age: '0' } : { max_age: String(longestProofSeconds) }),
      });
      return url.href;
    });
  }

  /**
   * Exchanges a code, which a browser has brought from the provider, for the person's claims.
   * @param callback the URL that the browser requested with the code, but with the console's own origin
   * @returns the person. `provenAt` is when they last authenticated at the provider, in milliseconds since 1970; null
   *   if the provider does not send this time
   * @throws ProviderError
   */
  async redeemCode(
    callback: URL,
    { state, nonce, verifier }: BrowserSecrets,
  ): Promise<Verified & { readonly provenAt: number | null }> {
    return this.#call(async (client, config) => {
      const tokens = await client.authorizationCodeGrant(config, callback, {
        ...{ pkceCodeVerifier: verifier, expectedState: state, expectedNonce: nonce, idTokenExpected: true },
      });
      const idToken = tokens.claims();
      if (idToken === undefined) throw new ProviderError('invalid', 'no_id_token');
      const verified = await this.#verified(client, config, tokens, idToken.sub);
      const { auth_time: seconds } = idToken;
      return { ...verified, provenAt: seconds === undefined ? null : Math.min(seconds * 1000, this.#now()) };
    });
  }

  /**
   * Reads a person's claims again with a refresh token.
   * @param subject the `sub` that the claims must have
   * @throws ProviderError
   */
  async refresh(refreshToken: string, subject: string): Promise<Verified> {
    return this.#call(async (client, config) => {
      const tokens = await client.refreshTokenGrant(config, refreshToken);
      const verified = await this.#verified(client, config, tokens, subject);
      // A provider that does not rotate refresh tokens sends no new token, and the current refresh token stays valid.
      return { ...verified, refreshToken: verified.refreshToken ?? refreshToken };
    });
  }

  /** Revokes a refresh token, if the provider supports this (RFC 7009). @throws ProviderError */
  async revoke(refreshToken: string): Promise<void> {
    return this.#call(async (client, config) => {
      if (config.serverMetadata().revocation_endpoint !== undefined) {
        await client.tokenRevocation(config, refreshToken, { token_type_hint: 'refresh_token' });
      }
    });
  }

  async #verified(
    client: typeof OpenId,
    config: OpenId.Configuration,
    tokens: OpenId.TokenEndpointResponse & OpenId.TokenEndpointResponseHelpers,
    subject: string,
  ): Promise<Verified> {
    const idToken = tokens.claims();
    if (idToken !== undefined && idToken.sub !== subject) throw new ProviderError('invalid', 'other_subject');
    const { claims: wanted } = this.options.rules;
    const isWhole = idToken !== undefined && wanted.every((name) => Object.hasOwn(idToken, name));
    const hasUserInfo = config.serverMetadata().userinfo_endpoint !== undefined;
    if (idToken === undefined && !hasUserInfo) throw new ProviderError('invalid', 'no_id_token');
    const more = isWhole || !hasUserInfo ? {} : await client.fetchUserInfo(config, tokens.access_token, subject);
    const { issuer } = config.serverMetadata();
    const claims = { ...more, ...idToken, iss: issuer, sub: subject };
    return { claims, refreshToken: tokens.refresh_token ?? null };
  }

  async #call<Result>(act: (client: typeof OpenId, config: OpenId.Configuration) => Promise<Result>): Promise<Result> {
    const client = await import('openid-client');
    try {
      return await act(client, await this.#configuration(client));
    } catch (error) {
      throw asProviderError(client, error);
    }
  }

  async #configuration(client: typeof OpenId): Promise<OpenId.Configuration> {
    const now = this.#now();
    const known = this.#discovered;
    if (known !== null && now >= known.at && now - known.at < metadataMilliseconds) return known.config;
    const { issuer, clientId, clientSecret } = this.options;
    const server = new URL(issuer);
    // An issuer with http is on loopback, because the configuration rejects all other http issuers.
    // eslint-disable-next-line @typescript-eslint/no-deprecated -- deprecated only so that its use stands out
    const loopback = server.protocol === 'http:' ? [client.allowInsecureRequests] : [];
    const config = await client.discovery(server, clientId, clientSecret, undefined, {
      execute: [...loopback, client.enableNonRepudiationChecks],
      timeout: timeoutSeconds,
      [client.customFetch]: boundedFetch,
    });
    const { id_token_signing_alg_values_supported: algorithms = ['RS256'] } = config.serverMetadata();
    if (!algorithms.some((name) => asymmetric.test(name))) throw new ProviderError('invalid', 'algorithms');
    this.#discovered = { at: now, config };
    return config;
  }
}

function isOnline(scope: string): boolean {
  return scope !== 'offline_access';
}

function isWebAddress(text: string): boolean {
  return text.length <= longestText && /^https?:\/\/[\x21-\x7e]+$/.test(text) && URL.canParse(text);
}

const refusals = new Set(['authorization_pending', 'slow_down', 'access_denied', 'expired_token', 'invalid_grant']);

function asProviderError(client: typeof OpenId, error: unknown): ProviderError {
  if (error instanceof ProviderError) return error;
  // The provider sent the browser back with an error, for example because the person refused.
  if (error instanceof client.AuthorizationResponseError) return new ProviderError('refused', wordIn(error.error));
  if (error instanceof client.ResponseBodyError) {
    if (refusals.has(error.error)) return new ProviderError('refused', error.error);
    // For example invalid_client: the registry's own configuration is wrong, so every sign-in fails.
    return new ProviderError('unavailable', wordIn(error.error));
  }
  // If `boundedFetch` throws an error, openid-client throws another error with the original error in `cause`.
  const { cause } = error as { readonly cause?: unknown };
  if (cause instanceof UnusableResponse) return new ProviderError('unavailable', cause.code, { cause: error });
  const { code } = error as { readonly code?: unknown };
  const reason = typeof code === 'string' ? code.toLowerCase() : 'no_response';
  const isProof = /^oauth_(?:invalid_response|jwt|json|unsupported|parse|key)|^oauth_(?:missing|invalid)/.test(reason);
  return new ProviderError(isProof ? 'invalid' : 'unavailable', reason, { cause: error });
}

function wordIn(error: string): string {
  return /^[a-z_]{1,40}$/.test(error) ? error : 'error';
}

/** Maximum size of a response of the provider. Metadata and key sets of large providers have about 20 kB. */
const mostBytes = 256 * 1024;

/**
 * Fetches like `fetch`, but limits the body to 256 KiB, because a provider could otherwise exhaust the memory. Also
 * fails if the Content-Type is JSON but the body is not valid JSON. Otherwise openid-client would report a truncated
 * body as an invalid token.
 */
async function boundedFetch(url: string, options: object): Promise<Response> {
  const { body, status, headers } = await fetch(url, options);
  if (body === null) return new Response(null, { status, headers });
  const chunks: Uint8Array[] = [];
  let size = 0;
  // An error that is thrown in the loop cancels the stream, so the rest of the body is not read.
  for await (const chunk of body as AsyncIterable<Uint8Array>) {
    size += chunk.byteLength;
    if (size > mostBytes) throw new UnusableResponse('response_too_large');
    chunks.push(chunk);
  }
  const whole = Buffer.concat(chunks);
  if (jsonType.test(headers.get('content-type') ?? '') && !isJson(whole)) {
    throw new UnusableResponse('response_is_not_json');
  }
  return new Response(whole, { status, headers });
}

const jsonType = /^\s*application\/(?:[a-z0-9.+-]+\+)?json\s*(?:;|$)/i;

function isJson(body: Buffer): boolean {
  try {
    // Like `Response.json()`, TextDecoder removes a byte order mark.
    JSON.parse(new TextDecoder().decode(body));
    return true;
  } catch {
    return false;
  }
}

/** Thrown for a response that is too large, or is not valid JSON because it was truncated or comes from a proxy. */
class UnusableResponse extends Error {
  constructor(readonly code: 'response_too_large' | 'response_is_not_json') {
    super(code);
  }
}
