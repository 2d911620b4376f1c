import type { Problem } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';
import { type CheckedAllowlist, checkIpAllowlist, type Concern } from './ip-allowlist.js';
import { checkOriginAllowlist } from './origin-allowlist.js';

/**
 * The allowlists of a merchant. Null: the list is not configured. Undefined: a change keeps the stored list, and a new
 * merchant gets null.
 */
export interface Allowlists {
  readonly ipAllowlist?: readonly string[] | null;
  readonly originAllowlist?: readonly string[] | null;
}

/**
 * Checks allowlists and converts them to canonical form.
 * @throws Refusal with up to 100 problems: invalid entries, and probable mistakes that the request has not confirmed
 */
export function acceptAllowlists(
  { ipAllowlist, originAllowlist }: Allowlists,
  confirmed: readonly string[] = [],
): Allowlists {
  const { ip, origin, lists } = checkBoth(ipAllowlist, originAllowlist);
  const [first, ...others] = [
    ...lists.flatMap(({ problems }) => problems),
    ...lists.flatMap(({ concerns }) => concerns.filter(({ flag }) => !confirmed.includes(flag))).map(unconfirmed),
  ].slice(0, mostProblems);
  if (first !== undefined) throw Refusal.invalid([first, ...others]);
  return {
    ...(ipAllowlist === undefined ? {} : { ipAllowlist: ip?.entries ?? null }),
    ...(originAllowlist === undefined ? {} : { originAllowlist: origin?.entries ?? null }),
  };
}

const mostProblems = 100;

/**
 * Returns the concerns (probable mistakes) in these allowlists. A request that sets these lists must confirm each
 * concern.
 */
export function allowlistConcerns({ ipAllowlist, originAllowlist }: Allowlists): readonly Concern[] {
  return checkBoth(ipAllowlist, originAllowlist).lists.flatMap(({ concerns }) => concerns);
}

function checkBoth(
  ipAllowlist: readonly string[] | null | undefined,
  originAllowlist: readonly string[] | null | undefined,
) {
  const ip = check('ipAllowlist', ipAllowlist, checkIpAllowlist);
  const origin = check('originAllowlist', originAllowlist, checkOriginAllowlist);
  return { ip, origin, lists: [ip, origin].filter((list) => list !== null) };
}

function check(
  path: string,
  given: readonly string[] | null | undefined,
  checkList: (given: readonly string[]) => CheckedAllowlist,
): CheckedAllowlist | null {
  if (given === null || given === undefined) return null;
  if (given.length > 0) return checkList(given);
  return {
    entries: [],
    problems: [],
    concerns: [{ path, flag: 'empty_list', what: 'an empty list admits no client' }],
  };
}

function unconfirmed({ path, flag, what }: Concern): Problem {
  return { path, message: `${path}: ${what}; send "confirm": ["${flag}"] too if you want this` };
}
