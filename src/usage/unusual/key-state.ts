import { dayMilliseconds, hourMilliseconds } from '../batch.js';

/** A country or network from which a key was used. */
interface Sighting {
  readonly name: string;
  /** Number of days with use. */
  readonly days: number;
  /** Start of the last day with use, in milliseconds since 1970. */
  readonly lastDay: number;
  /** Whether the first use in this country or network was reported as a finding. */
  readonly isReported: boolean;
}

/** The countries or the networks from which a key was used. */
export interface Sightings {
  /** When the first country or network was seen; null before that. */
  readonly since: number | null;
  readonly seen: readonly Sighting[];
}

/** The counts of a key in one hour. `hour` is the start of this hour, in milliseconds since 1970. */
export interface HourCount {
  readonly hour: number;
  readonly accepted: number;
  readonly refused: number;
  /** The address blocks that were new in this hour. */
  readonly addresses: readonly string[];
}

/** The largest value of each count in any hour of one week. `week` is the number of whole weeks since 1970. */
export interface WeekMaxima {
  readonly week: number;
  readonly accepted: number;
  readonly refused: number;
  readonly addresses: number;
}

/**
 * The history of a key. The rules compare new usage with it. All lists are bounded, and the whole state can be stored
 * as JSON. Times are in milliseconds since 1970.
 */
export interface KeyState {
  readonly version: 1;
  /** Time of the first accepted request; null if there has been none. */
  readonly firstUse: number | null;
  /** Time of the last accepted request; null if there has been none. */
  readonly lastUse: number | null;
  /** Number of days with an accepted request. */
  readonly activeDays: number;
  /** The longest time between two accepted requests, in milliseconds. */
  readonly longestGap: number;
  readonly countries: Sightings;
  readonly networks: Sightings;
  /** Names of the programs in User-Agent headers, most recently used last. */
  readonly agents: readonly string[];
  /** Known address blocks (/24 for IPv4, /64 for IPv6), most recently used last. */
  readonly addresses: readonly string[];
  /** The newest hours with requests, oldest first. */
  readonly hours: readonly HourCount[];
  /** The newest weeks with requests, oldest first. The maxima do not cover the hours in `hours`. */
  readonly weeks: readonly WeekMaxima[];
  /** When each pattern (a rule and the new value that it found) was last reported. */
  readonly reported: Readonly<Record<string, number>>;
}

/** Maximum lengths of the lists in a state. The state of a key in ordinary use is about 5 KiB of JSON. */
export const limits = { sightings: 32, agents: 16, addresses: 64, hours: 3, weeks: 9, newAddresses: 256, reported: 64 };

/** The state of a key that was never seen. */
export const unseenKey: KeyState = {
  ...({ version: 1, firstUse: null, lastUse: null, activeDays: 0, longestGap: 0 } as const),
  ...{ countries: { since: null, seen: [] }, networks: { since: null, seen: [] }, agents: [], addresses: [] },
  ...{ hours: [], weeks: [], reported: {} },
};

/** Moves a value to the end of a list without duplicates, or appends a new value. Keeps only the last `most` values. */
export function withLast(list: readonly string[], value: string, most: number): readonly string[] {
  if (list.at(-1) === value) return list;
  const others = list.includes(value) ? list.filter((one) => one !== value) : list;
  return [...others, value].slice(-most);
}

/** Records that the key was used from a country or network on a day. Returns the new sightings. */
export function withSighting(
  { since, seen }: Sightings,
  { name, day, at, isReported }: { name: string; day: number; at: number; isReported: boolean },
): Sightings {
  const known = seen.find((one) => one.name === name);
  if (known !== undefined && known.lastDay >= day) return { since, seen };
  const { days, isReported: was } = known ?? { days: 0, isReported };
  const sighting = { name, days: days + 1, lastDay: day, isReported: was };
  const others = seen.filter((one) => one.name !== name);
  const isFull = others.length === limits.sightings;
  // Drop the entry with the fewest days, so that a flood of new entries does not displace the usual ones. If several
  // entries have equally few days, drop the oldest of them.
  const rarest = isFull ? others.reduce((least, one) => (one.days < least.days ? one : least)) : null;
  return { since: since ?? at, seen: [...others.filter((one) => one !== rarest), sighting] };
}

const singleDays = 28;
const fewCountries = 8;

/**
 * Whether a new country would be normal for the key. This is so in two cases:
 * 1. The key was used in many countries.
 * 2. The key was used in some country on a single, recent day, and this use was not reported as a finding. By the
 *    Good-Turing estimate, the more values were seen only once, the more likely is a new value.
 */
export function roams({ seen }: Sightings, now: number): boolean {
  const isSingle = ({ days, lastDay, isReported }: Sighting): boolean =>
    days === 1 && !isReported && lastDay > now - singleDays * dayMilliseconds;
  return seen.length > fewCountries || seen.some(isSingle);
}

/**
 * Adds counts to an hour. If more hours than the limit are stored, the oldest ones are removed, and their values are
 * merged into the maxima of their week.
 */
export function withHour(
  state: Pick<KeyState, 'hours' | 'weeks'>,
  { hour, accepted, refused, addresses }: HourCount,
): Pick<KeyState, 'hours' | 'weeks'> {
  const held = state.hours.find((one) => one.hour === hour);
  const sum: HourCount = {
    hour,
    accepted: (held?.accepted ?? 0) + accepted,
    refused: (held?.refused ?? 0) + refused,
    addresses: [...new Set([...(held?.addresses ?? []), ...addresses])].slice(0, limits.newAddresses),
  };
  const others = state.hours.filter((one) => one.hour !== hour);
  const hours = [...others, sum].sort((one, other) => one.hour - other.hour);
  const old = hours.slice(0, -limits.hours);
  return { hours: hours.slice(-limits.hours), weeks: old.reduce(withWeek, state.weeks) };
}

function withWeek(weeks: readonly WeekMaxima[], { hour, accepted, refused, addresses }: HourCount) {
  const week = Math.floor(hour / (7 * dayMilliseconds));
  const known = weeks.find((one) => one.week === week) ?? { accepted: 0, refused: 0, addresses: 0 };
  const maxima = {
    week,
    accepted: Math.max(known.accepted, accepted),
    refused: Math.max(known.refused, refused),
    addresses: Math.max(known.addresses, addresses.length),
  };
  const others = weeks.filter((one) => one.week !== week);
  return [...others, maxima].sort((one, other) => one.week - other.week).slice(-limits.weeks);
}

/**
 * Returns, for each count, its largest value in any hour. Omits the latest hours, so that an attack in progress does
 * not become the norm.
 */
export function busiestHours({ weeks }: Pick<KeyState, 'weeks'>): Omit<WeekMaxima, 'week'> {
  return {
    accepted: Math.max(0, ...weeks.map(({ accepted }) => accepted)),
    refused: Math.max(0, ...weeks.map(({ refused }) => refused)),
    addresses: Math.max(0, ...weeks.map(({ addresses }) => addresses)),
  };
}

/** Returns the start of the hour or day (UTC) that contains a time. */
export function startOf(unit: 'hour' | 'day', at: number): number {
  const length = unit === 'hour' ? hourMilliseconds : dayMilliseconds;
  return at - (at % length);
}
