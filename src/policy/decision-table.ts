import type { Credential, RequestFacts } from './facts.js';
import { claimText } from './origins.js';

/** A row of the decision table: a denial code and the exact error response that the client gets. */
interface Row {
  /** The denial code in the access log. It is never renamed, because operators search for it. */
  readonly code: string;
  readonly status: 401 | 403;
  readonly message: string;
}

interface RequestRule extends Row {
  readonly passes: (facts: RequestFacts) => boolean;
  /**
   * Describes why a request failed this rule, for the access log and the `explain` command. The client never gets this
   * text.
   */
  readonly reason: (facts: RequestFacts) => string;
}

/** A rule about a key that the key store contains. An unknown key is denied before these rules run. */
interface CredentialRule extends Row {
  readonly passes: (facts: RequestFacts, credential: Credential) => boolean;
  /** @param textOf formats a time in milliseconds since 1970 */
  readonly reason: (facts: RequestFacts, credential: Credential, textOf: (moment: number) => string) => string;
}

function stateText(status: string, since: number | null, textOf: (moment: number) => string): string {
  return since === null ? `is ${status}` : `has been ${status} since ${textOf(since)}`;
}

const unknownKey = 'the key store has no record of this key';

/**
 * The rules that need only the request, in evaluation order (spec section 7). They run before the key is looked up in
 * the key store.
 */
export const requestRules = [
  {
    // Checked first, so that an eavesdropper on plain HTTP learns nothing from the other rules' responses (spec 5.2).
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
      throw new Undecidable('cannot determine whether the client address is a Tor exit');
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
    reason: () => 'the key is a test key, but this gateway accepts only live keys',
  },
  {
    // Rejects live keys in the sandbox. Otherwise a thief could test there whether a stolen live key works (spec 5.4).
    code: 'live_key_in_test',
    status: 401,
    message: 'Live API keys are not valid in this environment',
    passes: (facts) => facts.environment !== 'test' || facts.keyFormat === 'test',
    reason: () => 'the key is a live key, but this gateway accepts only test keys',
  },
] as const satisfies readonly RequestRule[];

/** The rules about the key and its merchant, in evaluation order. They run after the key look-up. */
export const credentialRules = [
  {
    code: 'key_unknown',
    status: 401,
    message: 'Invalid API Key',
    passes: () => true, // always passes: an unknown key has no credential, and `denyCredential` denies it first
    reason: () => unknownKey,
  },
  {
    code: 'key_inactive',
    status: 401,
    message: 'API Key is inactive or revoked',
    passes: (facts, key) => key.keyStatus === 'ACTIVE' && (key.expiresAt === null || facts.now < key.expiresAt),
    reason: (_facts, { keyStatus, keyStatusChangedAt, expiresAt, keyRevision }, textOf) =>
      keyStatus === 'ACTIVE' && expiresAt !== null
        ? `the key expired at ${textOf(expiresAt)} (record revision ${keyRevision})`
        : `the key ${stateText(keyStatus, keyStatusChangedAt, textOf)} (record revision ${keyRevision})`,
  },
  {
    code: 'merchant_inactive',
    status: 401,
    message: 'Merchant is not active',
    passes: (_facts, merchant) => merchant.merchantStatus === 'ACTIVE',
    reason: (_facts, { merchantStatus, merchantStatusChangedAt, merchantRevision }, textOf) =>
      `the merchant ${stateText(merchantStatus, merchantStatusChangedAt, textOf)} (record revision ${merchantRevision})`,
  },
  {
    code: 'merchant_not_live',
    status: 401,
    message: 'Merchant is not live',
    passes: (facts, merchant) => facts.environment !== 'live' || merchant.goLive,
    reason: (_facts, { merchantRevision }) => `goLive of the merchant is false (record revision ${merchantRevision})`,
  },
  {
    // An empty allowlist allows no address. Null means that there is no allowlist, so every address is allowed.
    code: 'ip_not_allowed',
    status: 401,
    message: 'IP address not allowed',
    passes: (facts, { ipAllowlist }) => ipAllowlist === null || ipAllowlist.admits(facts.clientAddress),
    reason: ({ clientAddress }, { ipAllowlist }) =>
      `${clientAddress.text} is not in the IP allowlist of the merchant (ranges in the list: ${ipAllowlist?.size ?? 0})`,
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
    // A path without a route needs no permission, because the gateway later responds with 404. A route that the gateway
    // itself serves needs no permission either.
    code: 'permission_denied',
    status: 403,
    message: 'Forbidden',
    passes: (facts, key) => facts.resource === null || key.permissions.allow(facts.resource, facts.access),
    reason: ({ resource, access }, { keyRevision }) =>
      `the key lacks the permission ${resource ?? ''}:${access} (record revision ${keyRevision})`,
  },
] as const satisfies readonly CredentialRule[];

/** All rows of the decision table in order. The first row whose rule fails determines the response. */
export const denials = [...requestRules, ...credentialRules] as const;

/** A row of the decision table. */
export type Denial = (typeof denials)[number];

/** A denial code, which identifies a row of the decision table. */
export type DenialCode = Denial['code'];

const byCode = new Map<string, Denial>(denials.map((denial) => [denial.code, denial]));

/** Returns the row of the decision table with this denial code. */
export function denialOf(code: DenialCode): Denial {
  const denial = byCode.get(code);
  if (denial === undefined) throw new Error(`no denial has the code ${code}`);
  return denial;
}

/**
 * Error for a rule that cannot be evaluated, because a fact about the request is unknown. Such a request is neither
 * denied nor accepted: it fails with 503.
 */
export class Undecidable extends Error {
  constructor(reason: string) {
    super(reason);
    this.name = 'Undecidable';
  }
}

/**
 * Returns the code of the first request rule that fails. Null if all request rules pass; the key is looked up next.
 * @throws Undecidable if a rule cannot be evaluated
 */
export function denyRequest(facts: RequestFacts): DenialCode | null {
  return requestRules.find((rule) => !rule.passes(facts))?.code ?? null;
}

/**
 * Returns the code of the first credential rule that fails; null if all pass.
 * @param credential null if the key store does not contain the key
 */
export function denyCredential(facts: RequestFacts, credential: Credential | null): DenialCode | null {
  if (credential === null) return 'key_unknown';
  return credentialRules.find((rule) => !rule.passes(facts, credential))?.code ?? null;
}

/**
 * Describes why a request was denied, for operators. The text can contain a host name chosen by the client, so mask
 * keys in it, truncate it and escape it before logging.
 * @param credential null if the key is unknown or was not looked up
 * @param textOf formats a time in milliseconds since 1970
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
