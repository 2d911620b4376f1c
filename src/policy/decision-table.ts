import type { Credential, RequestFacts } from './facts.js';
import { claimText } from './origins.js';

/** One row: its name, and exactly what a caller is told that does not pass. */
interface Row {
  /** Stands in the access log. Never renamed. */
  readonly code: string;
  readonly status: 401 | 403;
  readonly message: string;
}

interface RequestRule extends Row {
  readonly passes: (facts: RequestFacts) => boolean;
  /** Why a request does not pass, for the access log and `explain`; no caller sees it. */
  readonly reason: (facts: RequestFacts) => string;
}

/** A key that the store does not know passes no such rule, and none is asked about it. */
interface CredentialRule extends Row {
  readonly passes: (facts: RequestFacts, credential: Credential) => boolean;
  /** @param textOf writes a moment, which is in milliseconds since 1970 */
  readonly reason: (facts: RequestFacts, credential: Credential, textOf: (moment: number) => string) => string;
}

const unknownKey = 'the key store has no record of this key';

/** The rules that need only the request, in the order in which they are asked (spec section 7): before its key is looked up. */
export const requestRules = [
  {
    // First, so that nothing else is told to whoever listens on a plain line (spec 5.2).
    code: 'https_required',
    status: 401,
    message: 'API requests must use HTTPS (TLS)',
    passes: (facts) => facts.secure,
    reason: () => 'the connection of the client is not TLS',
  },
  {
    code: 'tor_blocked',
    status: 401,
    message: 'Tor traffic is not allowed',
    passes: ({ onionService, torExit }) => {
      if (onionService || torExit === true) return false;
      if (torExit === false) return true;
      throw new Undecidable('tor_blocked', 'it cannot be told whether the client address is a Tor exit');
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
    reason: () => 'x-api-key does not begin as a key does, or came more than once',
  },
  {
    code: 'test_key_in_live',
    status: 401,
    message: 'Test API keys are not valid in production',
    passes: (facts) => facts.environment !== 'live' || facts.keyFormat === 'live',
    reason: () => 'the key is a test key, and this gateway serves live',
  },
  {
    // So that a live key is never tried out in the sandbox (spec 5.4).
    code: 'live_key_in_test',
    status: 401,
    message: 'Live API keys are not valid in this environment',
    passes: (facts) => facts.environment !== 'test' || facts.keyFormat === 'test',
    reason: () => 'the key is a live key, and this gateway serves test',
  },
] as const satisfies readonly RequestRule[];

/** The rules about the key and its merchant, in the order in which they are asked once the key has been looked up. */
export const credentialRules = [
  {
    code: 'key_unknown',
    status: 401,
    message: 'Invalid API Key',
    passes: () => true, // there is a credential
    reason: () => unknownKey,
  },
  {
    code: 'key_inactive',
    status: 401,
    message: 'API Key is inactive or revoked',
    passes: (facts, key) => key.keyStatus === 'ACTIVE' && (key.expiresAt === null || facts.now < key.expiresAt),
    reason: (_facts, { keyStatus, expiresAt, keyRevision }, textOf) =>
      keyStatus === 'ACTIVE' && expiresAt !== null
        ? `the key expired ${textOf(expiresAt)} (revision ${keyRevision})`
        : `the key is ${keyStatus} (revision ${keyRevision})`,
  },
  {
    code: 'merchant_inactive',
    status: 401,
    message: 'Merchant is not active',
    passes: (_facts, merchant) => merchant.merchantStatus === 'ACTIVE',
    reason: (_facts, { merchantStatus, merchantRevision }) =>
      `the merchant is ${merchantStatus} (revision ${merchantRevision})`,
  },
  {
    code: 'merchant_not_live',
    status: 401,
    message: 'Merchant is not live',
    passes: (facts, merchant) => facts.environment !== 'live' || merchant.goLive,
    reason: (_facts, { merchantRevision }) => `goLive of the merchant is false (revision ${merchantRevision})`,
  },
  {
    // An empty list admits nobody; null: there is none.
    code: 'ip_not_allowed',
    status: 401,
    message: 'IP address not allowed',
    passes: (facts, { ipAllowlist }) => ipAllowlist === null || ipAllowlist.admits(facts.clientAddress),
    reason: ({ clientAddress }, { ipAllowlist }) =>
      `${clientAddress.text} is in none of ${ipAllowlist?.size ?? 0} ranges`,
  },
  {
    code: 'origin_not_allowed',
    status: 401,
    message: 'Origin not allowed',
    passes: (facts, { originAllowlist }) =>
      originAllowlist === null || (facts.origin !== null && originAllowlist.matches(facts.origin)),
    reason: ({ origin }) =>
      origin === null ? 'there is no Origin, Referer or Host' : `${claimText(origin)} is not on the list`,
  },
  {
    // A path without a route has no resource, and nothing to permit: it is a 404 later.
    code: 'permission_denied',
    status: 403,
    message: 'Forbidden',
    passes: (facts, key) => facts.resource === null || key.permissions.allow(facts.resource, facts.access),
    reason: ({ resource, access }, { keyRevision }) =>
      `the key has no permission ${resource ?? ''}:${access} (revision ${keyRevision})`,
  },
] as const satisfies readonly CredentialRule[];

/** The whole decision table; the first row that does not pass is the answer. */
export const denials = [...requestRules, ...credentialRules] as const;

/** One row of the table. */
export type Denial = (typeof denials)[number];

/** The name of a row. */
export type DenialCode = Denial['code'];

const byCode = new Map<string, Denial>(denials.map((denial) => [denial.code, denial]));

/** The row of a code. */
export function denialOf(code: DenialCode): Denial {
  const denial = byCode.get(code);
  if (denial === undefined) throw new Error(`no denial has the code ${code}`);
  return denial;
}

/** Nothing can be said about a rule, because what it depends on is not known. Never a denial, and never a pass. */
export class Undecidable extends Error {
  constructor(
    /** The rule. */
    readonly code: DenialCode,
    reason: string,
  ) {
    super(reason);
    this.name = 'Undecidable';
  }
}

/**
 * The first rule that the request itself breaks; null where its key may be looked up.
 * @throws Undecidable where a rule comes up of which nothing can be said
 */
export function denyRequest(facts: RequestFacts): DenialCode | null {
  return requestRules.find((rule) => !rule.passes(facts))?.code ?? null;
}

/** The first rule that the request breaks with this credential (null: the key is unknown); null where it is accepted. */
export function denyCredential(facts: RequestFacts, credential: Credential | null): DenialCode | null {
  if (credential === null) return 'key_unknown';
  return credentialRules.find((rule) => !rule.passes(facts, credential))?.code ?? null;
}

/**
 * Why a request was denied, in words for operators. The text may hold a host of the caller's choice: mask, cut and escape it.
 * @param credential null: the key is unknown, or was not looked up
 * @param textOf writes a moment, which is in milliseconds since 1970
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
 * The whole decision: the first row of the table that does not pass, or null where the request is accepted.
 * @throws Undecidable
 */
export function decide(facts: RequestFacts, credential: Credential | null): DenialCode | null {
  return denyRequest(facts) ?? denyCredential(facts, credential);
}
