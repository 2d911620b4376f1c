import type { Rule, RuleProblem } from '../config-error.js';
import type { Config } from '../schema.js';
import { isLoopback } from './loopback.js';

/** Rules for the OpenID provider at which administrators sign in. */
export const oidcRules: readonly Rule[] = [issuerIsHttps, scopeIsOpenId, rolesAreReadable, ownersAreApproved];

/**
 * Requires an https URL except on loopback, because otherwise an attacker on the network could sign in as any person.
 */
function issuerIsHttps({ registry: { oidc } }: Config): RuleProblem[] {
  if (oidc === null) return [];
  const { issuer } = oidc;
  if (!URL.canParse(issuer)) return [{ path: 'registry.oidc.issuer', message: 'expected a URL' }];
  const { protocol, hostname } = new URL(issuer);
  if (protocol === 'https:' || isLoopback(hostname)) return [];
  return [
    { path: 'registry.oidc.issuer', message: 'expected https, because http is accepted only for loopback addresses' },
  ];
}

function scopeIsOpenId({ registry: { oidc } }: Config): RuleProblem[] {
  if (oidc === null || oidc.scope.split(' ').includes('openid')) return [];
  return [
    {
      path: 'registry.oidc.scope',
      message:
        'expected openid among the scopes, because without it the provider does not send the identity of the person',
    },
  ];
}

/**
 * Rejects a role entry in three cases:
 * 1. An earlier entry has the same claim and value. One entry must list all roles of this value.
 * 2. The entry mixes platform roles and roles of a merchant's members.
 * 3. The entry gives members' roles, but no claim for the merchant id is configured.
 */
function rolesAreReadable({ registry: { oidc } }: Config): RuleProblem[] {
  const { roles = [], merchant = null } = oidc ?? {};
  return roles.flatMap(({ claim, value, roles: given }, index) => {
    const path = `registry.oidc.roles[${index}]`;
    const first = roles.findIndex((one) => one.claim === claim && one.value === value);
    const members = given.filter((role) => role.startsWith('merchant-')).length;
    const problems: RuleProblem[] = [];
    if (first < index) {
      const message = `is already in registry.oidc.roles[${first}] for the same claim; list the roles of both entries in one entry`;
      problems.push({ path: `${path}.value`, message });
    }
    if (members > 0 && members < given.length) {
      const message =
        "mixes roles of the platform with roles of a merchant's members (merchant-…); expected only one of these kinds";
      problems.push({ path: `${path}.roles`, message });
    } else if (members > 0 && merchant === null) {
      const message =
        "gives roles of a merchant's members, so registry.oidc.merchant must name the claim that contains their merchant id";
      problems.push({ path: `${path}.roles`, message, others: ['registry.oidc.merchant'] });
    }
    return problems;
  });
}

/**
 * Rejects claims that give the role `owner` if new owners need an approval, because a sign-in would bypass that
 * approval.
 */
function ownersAreApproved({ registry: { oidc, approvals } }: Config): RuleProblem[] {
  if (approvals?.owners !== true) return [];
  return (oidc?.roles ?? []).flatMap(({ roles }, index) => {
    if (!roles.includes('owner')) return [];
    const message =
      'gives the role owner without the approval that registry.approvals.owners requires; expected other roles, or false in registry.approvals.owners';
    return [{ path: `registry.oidc.roles[${index}].roles`, message, others: ['registry.approvals.owners'] }];
  });
}
