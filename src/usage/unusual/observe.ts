import { type AddressCount, dayMilliseconds, hourMilliseconds, type KeyUsage } from '../batch.js';
import type { Finding, Moment, Thresholds } from './finding.js';
import {
  busiestHours,
  type KeyState,
  limits,
  roams,
  type Sightings,
  startOf,
  unseenKey,
  withHour,
  withLast,
  withSighting,
} from './key-state.js';
import { type Place, placeOf, programOf } from './places.js';

/** The new state of a key, and the findings about its use. */
export interface Observation {
  readonly state: KeyState;
  readonly findings: readonly Finding[];
}

/** A pattern that was reported is not reported again for this long. See `Finding.pattern`. */
const repeatMilliseconds = 7 * dayMilliseconds;
/** How far a gateway's clock is allowed to be ahead. Times further in the future are ignored as wrong. */
const aheadMilliseconds = 5 * 60_000;
const ownMaximumFactor = 3;
const refusalFactor = 10;
/** For a key used on fewer days than this, the usual time between uses is unknown. A payroll key is used monthly. */
const daysOfRhythm = 5;
const withoutRhythmFactor = 1.5;
const longerGapFactor = 1.5;

/** A network that was reported as new counts as the merchant's own once it was used on more days than this. */
const reportedDays = 2;

/**
 * Codes of requests that a client should not have sent. Other codes are mostly caused by failures, or by changes that
 * administrators make.
 */
const probing: ReadonlySet<string> = new Set([
  ...['ip_not_allowed', 'origin_not_allowed', 'permission_denied', 'not_found', 'method_not_allowed', 'invalid_path'],
]);

const nowhere = { address: null, country: null, asNumber: null };

/**
 * Compares the usage of one key in one batch with the key's history. A batch has the counts of one gateway process.
 * Batches of different processes can arrive late, in any order, and with the counts of several hours.
 * @param before the key's history; null if the key was never seen
 */
export function observe(before: KeyState | null, usage: KeyUsage, moment: Moment, thresholds: Thresholds): Observation {
  const { now } = moment;
  const state = before ?? unseenKey;
  const found = [...blockedUse(usage, moment)];
  // A look-up id means that the gateway refused the requests before it read the key's record. Only the rules for Tor
  // and plain HTTP apply to such requests, and to requests without a key id.
  if (usage.keyId === null || usage.lookupId !== null) return reporting(state, found, now, thresholds);
  const until = now + aheadMilliseconds;
  const rows = usage.addresses.filter(({ lastAt }) => lastAt <= until);
  const learned = isOlder(state.firstUse, now, thresholds.learnDays);
  const agents = usage.agents.flatMap(({ agent }) => (agent === null ? [] : [programOf(agent)]));
  const hasNewAgent = agents.some((agent) => !state.agents.includes(agent));
  const ofPlaces = observePlaces(state, rows, { now, thresholds, hasNewAgent, activeDays: state.activeDays });
  const ofUse = observeUse(state, usage, rows, moment, thresholds);
  const ofHours = observeHours(state, usage, ofPlaces.newBlocks, { now, learned, thresholds });
  const after: KeyState = {
    ...state,
    ...ofUse.state,
    ...ofHours.state,
    countries: ofPlaces.countries,
    networks: ofPlaces.networks,
    addresses: ofPlaces.addresses,
    agents: agents.reduce((list, agent) => withLast(list, agent, limits.agents), state.agents),
  };
  return reporting(after, [...found, ...ofPlaces.found, ...ofUse.found, ...ofHours.found], now, thresholds);
}

/**
 * Drops duplicate findings, findings of rules that are off, and patterns that were reported recently. Records the rest
 * as reported.
 */
function reporting(state: KeyState, found: readonly Finding[], now: number, { off }: Thresholds): Observation {
  const isDue = ({ rule, pattern }: Finding): boolean =>
    !off.includes(rule) && now - (state.reported[pattern] ?? -Infinity) >= repeatMilliseconds;
  const findings = found.filter(isDue).filter((one, at, all) => {
    return all.findIndex(({ pattern }) => pattern === one.pattern) === at;
  });
  if (findings.length === 0) return { state, findings };
  const reported = new Map(Object.entries(state.reported));
  for (const { pattern } of findings) {
    reported.delete(pattern);
    reported.set(pattern, now);
  }
  return { state: { ...state, reported: Object.fromEntries([...reported].slice(-limits.reported)) }, findings };
}

function isOlder(since: number | null, now: number, days: number): boolean {
  return since !== null && now - since >= days * dayMilliseconds;
}

function* blockedUse({ codes }: KeyUsage, { now, from }: Moment): Iterable<Finding> {
  for (const [code, rule, how] of [
    ['tor_blocked', 'tor', 'from a Tor exit'],
    ['https_required', 'plain-http', 'over plain HTTP, so others may have read the key'],
  ] as const) {
    const rows = codes.filter((row) => row.code === code && row.count > 0);
    const count = rows.reduce((sum, row) => sum + row.count, 0);
    if (count > 0)
      yield {
        ...{
          rule,
          pattern: rule,
          at: Math.min(now, ...rows.map(({ hour }) => Math.max(hour, from))),
        },
        ...{ message: `${counted(count, 'request')} ${how}`, ...nowhere },
      };
  }
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

interface PlaceContext {
  readonly now: number;
  readonly thresholds: Thresholds;
  readonly hasNewAgent: boolean;
  readonly activeDays: number;
}

interface ObservedPlaces extends Pick<KeyState, 'countries' | 'networks' | 'addresses'> {
  readonly found: readonly Finding[];
  /** The address blocks that are not in the key's history, by hour. */
  readonly newBlocks: ReadonlyMap<number, readonly string[]>;
}

/** Compares the countries, networks and address blocks of the requests with the key's history. */
function observePlaces(state: KeyState, rows: readonly AddressCount[], context: PlaceContext): ObservedPlaces {
  const { now, thresholds } = context;
  let { countries, networks, addresses } = state;
  const found: Finding[] = [];
  const newBlocks = new Map<number, string[]>();
  for (const row of rows) {
    const place = placeOf(row);
    if (place === null) continue;
    const { block, country, network } = place;
    const isNewBlock = !addresses.includes(block);
    addresses = withLast(addresses, block, limits.addresses);
    if (isNewBlock) {
      const hour = startOf('hour', row.firstAt);
      newBlocks.set(hour, [...(newBlocks.get(hour) ?? []), block]);
    }
    // A known address block, such as an IPv4 /24, does not move to another country or network. If its country or
    // network seems new, only the GeoIP database has changed. So a known block causes no finding.
    const finding = isNewBlock ? placeFinding(place, row.firstAt, { ...context, countries, networks }) : null;
    if (finding !== null && !thresholds.off.includes(finding.rule)) found.push(finding);
    if (row.accepted === 0 && finding === null) continue;
    const sighting = { day: startOf('day', row.lastAt), at: Math.min(row.firstAt, now), isReported: finding !== null };
    if (country !== null) countries = withSighting(countries, { ...sighting, name: country });
    if (network !== null) networks = withSighting(networks, { ...sighting, name: network });
  }
  return { countries, networks, addresses, found, newBlocks };
}

function placeFinding(
  { address, country, asNumber, network }: Place,
  at: number,
  { now, thresholds, hasNewAgent, activeDays, ...known }: PlaceContext & Pick<KeyState, 'countries' | 'networks'>,
): Finding | null {
  const isNew = ({ seen, since }: Sightings, name: string | null): boolean =>
    name !== null && !seen.some((one) => one.name === name) && isOlder(since, now, thresholds.learnDays);
  const from = `from ${address}`;
  const isNewNetwork = isNew(known.networks, network);
  if (isNew(known.countries, country) && !roams(known.countries, now)) {
    // A new country in a known network, with known programs, is another region of the merchant's own provider.
    if (asNumber !== null && !isNewNetwork && !hasNewAgent) return null;
    const message = `first use in ${country ?? ''}, ${from}${asNumber === null ? '' : ` (AS${asNumber})`}`;
    return { rule: 'new-country', pattern: `new-country:${country ?? ''}`, at, message, address, country, asNumber };
  }
  // A key that was used in several networks, for example on a mobile connection, will soon be used in further networks.
  // So a new network is a finding only if the key was used in a single network before.
  const own = known.networks.seen.filter(({ isReported, days }) => !isReported || days > reportedDays);
  const isSteady = activeDays >= daysOfRhythm && own.length === 1;
  if (!isNewNetwork || !isSteady) return null;
  const message = `first use in the network ${network ?? ''}${country === null ? '' : ` in ${country}`}, ${from}`;
  return { rule: 'new-network', pattern: `new-network:${network ?? ''}`, at, message, address, country, asNumber };
}

/** The changed members of the state of a key, and the findings. */
interface ObservedPart {
  readonly state: Partial<KeyState>;
  readonly found: readonly Finding[];
}

/** Compares the time of the batch's first accepted request with the last use in the key's history. */
function observeUse(
  state: KeyState,
  { lastUse }: KeyUsage,
  rows: readonly AddressCount[],
  { now, watchedSince }: Moment,
  { idleDays }: Thresholds,
): ObservedPart {
  const accepted = rows.filter((row) => row.accepted > 0);
  const times = [...accepted.flatMap(({ firstAt, lastAt }) => [firstAt, lastAt]), ...(lastUse ? [lastUse.at] : [])];
  const known = times.filter((at) => at <= now + aheadMilliseconds);
  if (known.length === 0) return { state: {}, found: [] };
  const [first, last] = [Math.min(...known), Math.max(...known)];
  const gap = state.lastUse === null ? 0 : first - state.lastUse;
  const isNewDay = state.lastUse === null || startOf('day', last) > startOf('day', state.lastUse);
  const after = {
    firstUse: Math.min(state.firstUse ?? first, first),
    lastUse: Math.max(state.lastUse ?? last, last),
    activeDays: state.activeDays + (isNewDay ? 1 : 0),
    longestGap: Math.max(state.longestGap, gap),
  };
  if (state.lastUse === null) return { state: after, found: [] };
  // The key may have been used while usage was not observed. So the time before `watchedSince` does not count as idle.
  const idle = first - Math.max(state.lastUse, watchedSince);
  const least = idleDays * dayMilliseconds * (state.activeDays < daysOfRhythm ? withoutRhythmFactor : 1);
  if (idle < least || idle <= longerGapFactor * state.longestGap) return { state: after, found: [] };
  const message = `first use after ${Math.floor(idle / dayMilliseconds)} days without use`;
  const row = accepted.find(({ firstAt }) => firstAt === first);
  const place = { address: row?.address ?? null, country: row?.country ?? null, asNumber: row?.asNumber ?? null };
  return { state: after, found: [{ rule: 'idle-key', pattern: 'idle-key', at: first, message, ...place }] };
}

interface HourContext {
  readonly now: number;
  /** Whether the first use of the key was at least `learnDays` ago. */
  readonly learned: boolean;
  readonly thresholds: Thresholds;
}

/** Adds the counts to their hours, and compares each of these hours with the busiest earlier hour. */
function observeHours(
  state: KeyState,
  { codes }: KeyUsage,
  newBlocks: ReadonlyMap<number, readonly string[]>,
  { now, learned, thresholds }: HourContext,
): ObservedPart {
  const counts = new Map<number, { accepted: number; refused: number }>();
  for (const { hour, code, count } of codes) {
    if (hour > now + aheadMilliseconds) continue;
    const sum = counts.get(hour) ?? { accepted: 0, refused: 0 };
    if (code === 'accepted') sum.accepted += count;
    else if (probing.has(code)) sum.refused += count;
    counts.set(hour, sum);
  }
  let after: Pick<KeyState, 'hours' | 'weeks'> = state;
  const found: Finding[] = [];
  for (const hour of new Set([...counts.keys(), ...newBlocks.keys()])) {
    const { accepted, refused } = counts.get(hour) ?? { accepted: 0, refused: 0 };
    after = withHour(after, { hour, accepted, refused, addresses: newBlocks.get(hour) ?? [] });
    if (learned) found.push(...hourFindings({ ...state, ...after }, hour, now, thresholds));
  }
  return { state: { hours: after.hours, weeks: after.weeks }, found };
}

/** Whether salaries are usually paid on the day of this hour (UTC): around the middle or the turn of a month. */
function isPayday(hour: number): boolean {
  const day = new Date(hour).getUTCDate();
  return day <= 2 || (day >= 13 && day <= 16) || day >= 24;
}

function* hourFindings(state: KeyState, hour: number, now: number, thresholds: Thresholds): Iterable<Finding> {
  const held = state.hours.find((one) => one.hour === hour);
  // If the hour is no longer stored, its late counts were merged into the maxima of its week. The late counts are only
  // a part of the hour's counts, so they are not compared.
  if (held === undefined) return;
  const own = busiestHours(state);
  const at = Math.max(hour, Math.min(now, hour + hourMilliseconds) - 1_000);
  const { surgeFactor, surgeRequests, surgeLearnDays, newAddresses, refusals } = thresholds;
  const isSurge = held.accepted >= surgeRequests && held.accepted > surgeFactor * Math.max(own.accepted, 1);
  if (isSurge && (isOlder(state.firstUse, now, surgeLearnDays) || !isPayday(hour))) {
    const message = `${held.accepted} accepted requests in one hour; the busiest hour before had ${own.accepted}`;
    yield { rule: 'surge', pattern: 'surge', at, message, ...nowhere };
  }
  const blocks = held.addresses.length;
  if (blocks >= Math.max(newAddresses, ownMaximumFactor * own.addresses)) {
    const message = `${blocks} new address blocks (IPv4 /24, IPv6 /64) in one hour; at most ${own.addresses} in any hour before`;
    yield { rule: 'new-addresses', pattern: 'new-addresses', at, message, ...nowhere };
  }
  const wasUsed = (state.lastUse ?? -Infinity) >= hour - dayMilliseconds;
  if (wasUsed && held.refused >= Math.max(refusals, refusalFactor * own.refused)) {
    const message = `${held.refused} refused requests in one hour; at most ${own.refused} in any hour before`;
    yield { rule: 'refusals', pattern: 'refusals', at, message, ...nowhere };
  }
}
