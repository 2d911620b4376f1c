import type { Credential, RequestFacts } from '../../src/policy/facts.js';
import { parseIpAddress } from '../../src/policy/ip-address.js';
import type { IpAddress } from '../../src/policy/ip-address.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import type { Environment } from '../../src/policy/key-format.js';
import { compileOriginPatterns } from '../../src/policy/origin-patterns.js';
import { compilePermissions } from '../../src/policy/permissions.js';

/** The arrival time of every request in these tests. */
export const now = Date.UTC(2025, 0, 15, 12);

/** Parses an address; an invalid address is a mistake in the test. */
export function address(text: string): IpAddress {
  const parsed = parseIpAddress(text);
  if (parsed === null) throw new Error(`${text} is not an IP address`);
  return parsed;
}

/** A request that passes every rule of its environment, but only just. */
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

/** A credential that only just accepts `acceptedFacts`: it has all allowlists, and the key expires in 1 ms. */
export function acceptingCredential(environment: Environment): Credential {
  return Object.freeze({
    keyId: 'key-1',
    keyLabel: null,
    merchantId: 'merchant-1',
    merchantName: 'Shop',
    environment,
    keyStatus: 'ACTIVE',
    expiresAt: now + 1,
    graceEndsAt: null,
    permissions: compilePermissions(['payouts:write']),
    merchantStatus: 'ACTIVE',
    goLive: environment === 'live',
    ipAllowlist: compileIpRanges(['192.0.2.0/24']),
    originAllowlist: compileOriginPatterns(['shop.example']),
    ...{ keyStatusChangedAt: null, merchantStatusChangedAt: null },
    keyRevision: 812,
    merchantRevision: 640,
  } satisfies Credential);
}
