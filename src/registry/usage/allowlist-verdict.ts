import { parseIpAddress } from '../../policy/ip-address.js';
import { compileIpRanges, type IpRange, type IpRanges, parseIpRange } from '../../policy/ip-ranges.js';
import { Refusal } from '../../rest/refusal.js';
import { addressOf, checkIpAllowlist } from '../merchants/ip-allowlist.js';
import type { RegistryDatabase } from '../registry-database.js';
import { sumOf } from './read-hours.js';
import type { DaysFilter } from './read-lists.js';
import type { Verdict } from './schema.js';

const mostEntries = 1_000;
/** Maximum number of addresses per check. Each check loads its addresses into memory, and a merchant can have many. */
const mostJudged = 100_000;
const mostShown = 100;

/**
 * Returns which accepted requests of a merchant an IP allowlist would have refused.
 * @param allow the entries, separated by commas
 * @throws Refusal 422 for an invalid entry, for too many entries, and if the requests came from too many addresses
 */
export async function judgeAllowlist(
  database: RegistryDatabase,
  { merchantId, since, until, key }: DaysFilter,
  allow: string,
): Promise<Verdict> {
  const given = allow.split(',').filter((entry) => entry !== '');
  const { entries, problems, concerns } = checkIpAllowlist(given);
  const [first, ...others] = problems.map(({ message }) => ({
    path: 'allow',
    message: message.replace('ipAllowlist', 'allow'),
  }));
  if (first !== undefined) throw Refusal.invalid([first, ...others]);
  if (given.length > mostEntries)
    throw Refusal.invalid([{ path: 'allow', message: `allow must have at most ${mostEntries} entries` }]);

  let wanted = database.selectFrom('usage_addresses').where('merchant_id', '=', merchantId);
  wanted = wanted.where('day', '>=', since).where('day', '<', until).where('accepted', '>', 0);
  if (key !== undefined) wanted = wanted.where('key_id', '=', key);
  const rows = await wanted
    .select([
      ...(['address'] as const),
      sumOf('accepted').as('requests'),
      (it) => it.fn.max('country').as('country'),
      (it) => it.fn.min<number>('first_at').as('first_at'),
      (it) => it.fn.max<number>('last_at').as('last_at'),
    ])
    .groupBy('address')
    .orderBy('requests', 'desc')
    .orderBy('address')
    .limit(mostJudged + 1)
    .execute();
  if (rows.length > mostJudged) {
    const message = `since is too early: requests from more than ${mostJudged} addresses have arrived since then. Choose a later time`;
    throw Refusal.invalid([{ path: 'since', message }]);
  }

  const list = compileIpRanges(entries);
  const ranges = entries.flatMap((entry) => parseIpRange(entry) ?? []);
  const judged = rows.map((row) => ({ ...row, isAdmitted: admits(list, ranges, row.address) }));
  const refused = judged.filter(({ isAdmitted }) => isAdmitted === false);
  const requestsOf = (some: readonly { readonly requests: number }[]): number =>
    some.reduce((sum, { requests }) => sum + requests, 0);
  const timeOf = (at: number): string => new Date(at).toISOString();
  const edge = (choose: (a: number, b: number) => number, times: readonly number[]): string | null =>
    times.length === 0 ? null : timeOf(times.reduce((a, b) => choose(a, b)));
  return {
    ...{ allow: [...entries], since: timeOf(since), until: timeOf(until), requests: requestsOf(rows) },
    refused: {
      ...{ requests: requestsOf(refused), addresses: refused.length },
      firstAt: edge(
        Math.min,
        refused.map(({ first_at }) => first_at),
      ),
      lastAt: edge(
        Math.max,
        refused.map(({ last_at }) => last_at),
      ),
    },
    entries: entries.map((entry) => ({
      ...{ entry, addresses: String(sizeOf(entry)) },
      // The text of each concern (warning about an entry) begins with the entry.
      concern: concerns.find(({ what }) => what.startsWith(`${entry} `))?.what ?? null,
    })),
    uncertain: requestsOf(judged.filter(({ isAdmitted }) => isAdmitted === null)),
    addresses: refused.slice(0, mostShown).map(({ address, country, requests, first_at, last_at }) => ({
      ...{ address, country, requests, firstAt: timeOf(first_at), lastAt: timeOf(last_at) },
    })),
  };
}

function sizeOf(entry: string): bigint {
  const range = parseIpRange(entry);
  return range === null ? 0n : BigInt(range.last) - BigInt(range.first) + 1n;
}

/**
 * Whether the list admits a stored address or network. True if the list admits the whole, false if it admits no part.
 * Null if the list possibly admits only a part of the network, or if the text is neither an address nor a network.
 */
function admits(list: IpRanges, ranges: readonly IpRange[], stored: string): boolean | null {
  const address = parseIpAddress(stored);
  if (address !== null) return list.admits(address);
  const network = parseIpRange(stored);
  if (network === null) return null;
  const { family, first, last } = network;
  const within = ranges.filter((one) => one.family === family && one.first <= last && one.last >= first);
  if (within.some((one) => one.first <= first && one.last >= last)) return true;
  // `within` contains only entries of the network's own family. But an IPv6 network can consist of embedded IPv4
  // addresses, which `list` compares with its IPv4 entries. So the result is false only if `list` also rejects the
  // first and the last address of the network.
  const isOutside = within.length === 0 && ![first, last].some((end) => list.admits(addressOf(family, BigInt(end))));
  return isOutside ? false : null;
}
