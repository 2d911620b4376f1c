import type { Credential, RequestFacts } from '../../src/policy/facts.js';
import { parseIpAddress } from '../../src/policy/ip-address.js';
import type { IpAddress } from '../../src/policy/ip-address.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import type { Environment } from '../../src/policy/key-format.js';
import { compileOriginPatterns } from '../../src/policy/origins.js';
import { compilePermissions } from '../../src/policy/permissions.js';

/** The moment at which every request of these tests arrives. */
export const now = Date.UTC(2025, 0, 15, 12);

/** The address that a text means; a text that means none is a mistake of the test. */
export function address(text: string): IpAddress {
  const parsed = parseIpAddress(text);
  if (parsed === null) throw new Error(`${text} is not an IP address`);
  return parsed;
}

/** A request of an environment that obeys every rule, and comes near to breaking each. */
export function acceptedFacts(environment: Environment): RequestFacts {
  return Object.freeze({
    environment,
    secure: true,
    clientAddress: address('192.0.2.7'),
    torExit: false,
    onionService: false,
    keyFormat: environment,
    origin: { header: 'origin', value: 'https://shop.example' },
    resource: 'payouts',
    access: 'write',
    now,
  } satisfies RequestFacts);
}

/** The credential that opens that request: every list is configured, the end is an instant away. */
export function acceptingCredential(environment: Environment): Credential {
  return Object.freeze({
    keyId: 'key-1',
    merchantId: 'merchant-1',
    environment,
    keyStatus: 'ACTIVE',
    expiresAt: now + 1,
    permissions: compilePermissions(['payouts:write']),
    merchantStatus: 'ACTIVE',
    goLive: environment === 'live',
    ipAllowlist: compileIpRanges(['192.0.2.0/24']),
    originAllowlist: compileOriginPatterns(['shop.example']),
    keyRevision: 812,
    merchantRevision: 640,
  } satisfies Credential);
}
