/** One row of the decision table: what is wrong, and exactly what the caller is told. */
interface DenialRow {
  readonly code: string;
  readonly status: 401 | 403;
  readonly message: string;
}

/** Rows that need only the request, in the order in which they are decided (spec section 7). */
export const requestDenials = [
  { code: 'https_required', status: 401, message: 'API requests must use HTTPS (TLS)' },
  { code: 'tor_blocked', status: 401, message: 'Tor traffic is not allowed' },
  { code: 'key_required', status: 401, message: 'API Key is required' },
  { code: 'key_format', status: 401, message: 'Invalid API key format' },
  { code: 'test_key_in_live', status: 401, message: 'Test API keys are not valid in production' },
  { code: 'live_key_in_test', status: 401, message: 'Live API keys are not valid in this environment' },
] as const satisfies readonly DenialRow[];

/** Rows that need the credential as well, in the order in which they are decided. */
export const credentialDenials = [
  { code: 'key_unknown', status: 401, message: 'Invalid API Key' },
  { code: 'key_inactive', status: 401, message: 'API Key is inactive or revoked' },
  { code: 'merchant_inactive', status: 401, message: 'Merchant is not active' },
  { code: 'merchant_not_live', status: 401, message: 'Merchant is not live' },
  { code: 'ip_not_allowed', status: 401, message: 'IP address not allowed' },
  { code: 'origin_not_allowed', status: 401, message: 'Origin not allowed' },
  { code: 'permission_denied', status: 403, message: 'Forbidden' },
] as const satisfies readonly DenialRow[];

/** The whole decision table; the first row that fails is the answer. */
export const denials = [...requestDenials, ...credentialDenials] as const;

/** One row of the table, as seen by whoever answers the caller. */
export type Denial = (typeof denials)[number];

/** The stable name of a denial, as it stands in the access log. Never renamed. */
export type DenialCode = Denial['code'];

const byCode = new Map<string, Denial>(denials.map((denial) => [denial.code, denial]));

/** The row of a code. */
export function denialOf(code: DenialCode): Denial {
  const denial = byCode.get(code);
  if (denial === undefined) throw new Error(`no denial has the code ${code}`);
  return denial;
}
