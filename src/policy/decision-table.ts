import type { Credential, RequestFacts } from './facts.js';
import { claimText } from './origins.js';

/** A row of the decision table: its code and the exact error response. */
interface Row {
  /** Appears in the access log; never renamed. */
  readonly code: string;
  readonly status: 401 | 403;
  readonly message: string;
}

interface RequestRule extends Row {
  readonly passes: (facts: RequestFacts) => boolean;
  /** Why a request fails the rule, for the access log and `explain`; never sent to the client. */
  readonly reason: (facts: RequestFacts) => string;
}

/** A rule about a known key. An unknown key fails before any credential rule runs. */
interface CredentialRule extends Row {
  readonly passes: (facts: RequestFacts, credential: Credential) => boolean;
  /** @param textOf formats a time given in milliseconds since 1970 */
  readonly reason: (facts: RequestFacts, credential: Credential, textOf: (moment: number) => string) => string;
}

function stateText(status: string, since: number | null, textOf: (moment: number) => string): string {
  return since === null ? `is ${status}` : `has been ${status} since ${textOf(since)}`;
}

const unknownKey = 'the key store has no record of this key';

/** Rules that need only the request, in evaluation order (spec section 7). They run before the key look-up. */
export const requestRules = [
  {
    // First, so that an eavesdropper on a plaintext connection sees no other response (spec 5.2).
    code: 'https_required',
    status: 401,
    message: 'API requests must use HTTPS (TLS)',
    passes: (facts) => facts.secure,
    reason: () => 'the client connection does not use TLS',
  },
  {
    code: 'tor_blocked',
    status: 401,
    message: 'Tor traffic is not allowed',
    passes: ({ onionService, torExit }) => {
      if (onionService || torExit === true) return false;
      if (torExit === false) return true;
      throw new Undecidable('tor_blocked', 'cannot determine whether the client address is a Tor exit');
    },
    reason: ({ torExit, clientAddress }) =>
      torExit === true ? `${clientAddress.text} is a Tor exit` : 'Host, Origin or Referer names an onion service',
  },
  {
    code: 'key_required',
    status: 401,
    message: 'API Key is required',
    passes: (facts) => facts.keyFormat !== 'absent',
    reason: () => 'x-api-key is missing or empty',
  },
  {
    code: 'key_format',
    status: 401,
    message: 'Invalid API key format',
    passes: (facts) => facts.keyFormat === 'live' || facts.keyFormat === 'test',
    reason: () => 'x-api-key lacks the prefix of an API key, or was sent more than once',
  },
  {
    code: 'test_key_in_live',
    status: 401,
    message: 'Test API keys are not valid in production',
    passes: (facts) => facts.environment !== 'live' || facts.keyFormat === 'live',
    reason: () => 'the key is a test key, and this gateway serves live',
  },
  {
    // Keeps live keys from being tried in the sandbox (spec 5.4).
    code: 'live_key_in_test',
    status: 401,
    message: 'Live API keys are not valid in this environment',
    passes: (facts) => facts.environment !== 'test' || facts.keyFormat === 'test',
    reason: () => 'the key is a live key, and this gateway serves test',
  },
] as const satisfies readonly RequestRule[];

/** Rules about the key and its merchant, in evaluation order. They run after the key look-up. */
export const credentialRules = [
  {
    code: 'key_unknown',
    status: 401,
    message: 'Invalid API Key',
    passes: () => true, // a credential exists
    reason: () => unknownKey,
  },
  {
    code: 'key_inactive',
    status: 401,
    message: 'API Key is inactive or revoked',
    passes: (facts, key) => key.keyStatus === 'ACTIVE' && (key.expiresAt === null || facts.now < key.expiresAt),
    reason: (_facts, { keyStatus, keyStatusChangedAt, expiresAt, keyRevision }, textOf) =>
      keyStatus === 'ACTIVE' && expiresAt !== null
        ? `the key expired ${textOf(expiresAt)} (revision ${keyRevision})`
        : `the key ${stateText(keyStatus, keyStatusChangedAt, textOf)} (revision ${keyRevision})`,
  },
  {
    code: 'merchant_inactive',
    status: 401,
    message: 'Merchant is not active',
    passes: (_facts, merchant) => merchant.merchantStatus === 'ACTIVE',
    reason: (_facts, { merchantStatus, merchantStatusChangedAt, merchantRevision }, textOf) =>
      `the merchant ${stateText(merchantStatus, merchantStatusChangedAt, textOf)} (revision ${merchantRevision})`,
  },
  {
    code: 'merchant_not_live',
    status: 401,
    message: 'Merchant is not live',
    passes: (facts, merchant) => facts.environment !== 'live' || merchant.goLive,
    reason: (_facts, { merchantRevision }) => `goLive of the merchant is false (revision ${merchantRevision})`,
  },
  {
    // An empty list admits no address; null: no allowlist.
    code: 'ip_not_allowed',
    status: 401,
    message: 'IP address not allowed',
    passes: (facts, { ipAllowlist }) => ipAllowlist === null || ipAllowlist.admits(facts.clientAddress),
    reason: ({ clientAddress }, { ipAllowlist }) =>
      `${clientAddress.text} is in none of the ${ipAllowlist?.size ?? 0} allowlist ranges`,
  },
  {
    code: 'origin_not_allowed',
    status: 401,
    message: 'Origin not allowed',
    passes: (facts, { originAllowlist }) =>
      originAllowlist === null || (facts.origin !== null && originAllowlist.matches(facts.origin)),
    reason: ({ origin }) =>
      origin === null
        ? 'the request has no Origin, Referer or Host'
        : `${claimText(origin)} is not on the origin allowlist`,
  },
  {
    // A path without a route has no resource to permit; a later step responds with 404.
    code: 'permission_denied',
    status: 403,
    message: 'Forbidden',
    passes: (facts, key) => facts.resource === null || key.permissions.allow(facts.resource, facts.access),
    reason: ({ resource, access }, { keyRevision }) =>
      `the key has no permission ${resource ?? ''}:${access} (revision ${keyRevision})`,
  },
] as const satisfies readonly CredentialRule[];

/** The whole decision table; the first failing row determines the response. */
export const denials = [...requestRules, ...credentialRules] as const;

/** A row of the table. */
export type Denial = (typeof denials)[number];

/** The code of a row. */
export type DenialCode = Denial['code'];

const byCode = new Map<string, Denial>(denials.map((denial) => [denial.code, denial]));

/** Returns the row of a code. */
export function denialOf(code: DenialCode): Denial {
  const denial = byCode.get(code);
  if (denial === undefined) throw new Error(`no denial has the code ${code}`);
  return denial;
}

/** A rule cannot be evaluated because a fact is unknown. This is neither a denial nor a pass. */
export class Undecidable extends Error {
  constructor(
    /** The rule that cannot be evaluated. */
    readonly code: DenialCode,
    reason: string,
  ) {
    super(reason);
    this.name = 'Undecidable';
  }
}

/**
 * The first request rule that fails; null if the key may be looked up.
 * @throws Undecidable if a rule cannot be evaluated
 */
export function denyRequest(facts: RequestFacts): DenialCode | null {
  return requestRules.find((rule) => !rule.passes(facts))?.code ?? null;
}

/** The first credential rule that fails (null credential: the key is unknown); null if the request is accepted. */
export function denyCredential(facts: RequestFacts, credential: Credential | null): DenialCode | null {
  if (credential === null) return 'key_unknown';
  return credentialRules.find((rule) => !rule.passes(facts, credential))?.code ?? null;
}

/**
 * Why a request was denied, for operators. The text may contain a host that the client chose: mask, truncate and escape
 * it.
 * @param credential null: the key is unknown, or was not looked up
 * @param textOf formats a time given in milliseconds since 1970
 */
export function reasonOf(
  code: DenialCode,
  facts: RequestFacts,
  credential: Credential | null,
  textOf: (moment: number) => string,
): string {
  const ofRequest = requestReasons.get(code)?.(facts);
  return ofRequest ?? (credential && credentialReasons.get(code)?.(facts, credential, textOf)) ?? unknownKey;
}

const requestReasons = new Map<string, RequestRule['reason']>(requestRules.map(({ code, reason }) => [code, reason]));
const credentialReasons = new Map<string, CredentialRule['reason']>(
  credentialRules.map(({ code, reason }) => [code, reason]),
);

/**
 * The whole decision: the first failing row of the table, or null if the request is accepted.
 * @throws Undecidable
 */
export function decide(facts: RequestFacts, credential: Credential | null): DenialCode | null {
  return denyRequest(facts) ?? denyCredential(facts, credential);
}
