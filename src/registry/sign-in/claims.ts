import { createHash } from 'node:crypto';
import { actorForm } from '../../rest/actor.js';
import { isRole, roles as roleTable } from '../administrators/roles.js';

/**
 * One entry of `registry.oidc.roles`: a claim (a field of the ID token), its value, and the roles that a person with
 * this value gets.
 */
export interface RoleRule {
  readonly claim: string;
  readonly value: string;
  readonly roles: readonly string[];
}

/**
 * Derives a person's roles from the claims (fields) of an ID token, and for a member (an administrator of a single
 * merchant) also the merchant.
 */
export class ClaimRules {
  readonly #roles: readonly RoleRule[];
  readonly #merchant: string | null;

  /** @param merchant the name of the claim with a member's merchant id; null: claims cannot make a person a member */
  constructor(roles: readonly RoleRule[], merchant: string | null) {
    this.#roles = roles;
    this.#merchant = merchant;
  }

  /** The names of the claims that the rules need. */
  get claims(): readonly string[] {
    return [
      ...new Set([...this.#roles.map(({ claim }) => claim), ...(this.#merchant === null ? [] : [this.#merchant])]),
    ];
  }

  /** Whether claims determine the roles. If not, the administrator's stored roles apply. */
  get decide(): boolean {
    return this.#roles.length > 0;
  }

  /** Returns the roles and the merchant that claims give, or the reason why they give no access. */
  grantOf(claims: Readonly<Record<string, unknown>>): Grant | { readonly cause: string } {
    const given = this.#roles.filter(({ claim, value }) => Object.hasOwn(claims, claim) && has(claims[claim], value));
    const roles = [...new Set(given.flatMap((rule) => rule.roles))].filter(isRole);
    if (roles.length === 0) return { cause: 'no-role' };
    const merchant = this.#merchant !== null && Object.hasOwn(claims, this.#merchant) ? claims[this.#merchant] : null;
    const merchantId = typeof merchant === 'string' && merchant !== '' ? merchant : null;
    const members = roles.filter((role) => roleTable[role].isOfMember).length;
    // Members are administrators of a single merchant. Rejects claims that mix members' roles with other roles, that
    // give a member no merchant, or that give any other administrator a merchant. Otherwise a wrong entry at the
    // provider could show a member all merchants.
    if (members !== (merchantId === null ? 0 : roles.length)) return { cause: 'roles-do-not-fit-merchant' };
    return { roles, merchantId };
  }
}

/** What claims grant a person: roles, and to a member the merchant. For any other person, `merchantId` is null. */
interface Grant {
  readonly roles: readonly string[];
  readonly merchantId: string | null;
}

function has(given: unknown, value: string): boolean {
  return Array.isArray(given) ? given.includes(value) : given === value;
}

const longestName = 56;

/**
 * Returns a display name for a new administrator, in a form that `actorForm` accepts. The name can be in use already:
 * `accountOf` makes it unique, and `iss` and `sub` identify the person.
 */
export function nameIn(claims: Readonly<Record<string, unknown>>): string {
  const { preferred_username: username, sub } = claims;
  const text = typeof username === 'string' ? username.normalize('NFKD') : '';
  const safe = text.replaceAll(/[^A-Za-z0-9._@:+-]+/g, '').replace(/^[^A-Za-z0-9]+/, '');
  const name = safe.slice(0, longestName);
  if (actorForm.test(name)) return name;
  return `person-${createHash('sha256').update(String(sub)).digest('hex').slice(0, 12)}`;
}
