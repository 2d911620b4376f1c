import { dayMilliseconds, hourMilliseconds } from '../../../src/usage/batch.js';
import type { Draws } from './draws.js';

// The traffic of ordinary merchants. The model has no access to the detectors and their thresholds.

/** A place on the internet: an address in a country and an AS. */
export interface Origin {
  readonly address: string;
  readonly country: string;
  readonly asNumber: number;
}

/** Requests of one key from one origin. */
export interface Requests {
  readonly at: number;
  readonly count: number;
  readonly origin: Origin;
  readonly agent: string;
  readonly code: string;
}

/**
 * The networks (AS numbers) of people and offices in each country, each with its share in percent. The first network of
 * a country is a mobile network.
 */
const networks: Readonly<Record<string, readonly (readonly [asNumber: number, share: number])[]>> = {
  NG: [
    ...([
      [29465, 50],
      [36873, 25],
      [37148, 15],
      [37076, 10],
    ] as const),
  ],
  KE: [
    ...([
      [33771, 60],
      [36926, 25],
      [12455, 15],
    ] as const),
  ],
  GH: [
    ...([
      [30986, 60],
      [29614, 25],
      [37140, 15],
    ] as const),
  ],
  ZA: [
    ...([
      [36994, 40],
      [16637, 35],
      [37168, 25],
    ] as const),
  ],
};
const countries = [
  ...([
    ['NG', 70],
    ['KE', 12],
    ['GH', 12],
    ['ZA', 6],
  ] as const),
];
/** Hosting providers in the merchants' countries. */
const hosters: Readonly<Record<string, readonly number[]>> = {
  NG: [37340, 328110, 37282, 36920],
  KE: [37061, 15808, 36866],
  GH: [37012, 35091],
  ZA: [37153, 37611, 10474],
};
const clouds = [
  ...([
    [16509, 50],
    [8075, 30],
    [15169, 20],
  ] as const),
];
const regions = ['IE', 'ZA', 'US', 'DE', 'GB', 'FR', 'NL', 'SG', 'IN', 'AE'];
const agents = [
  'axios/1.7.2',
  'GuzzleHttp/7',
  'python-requests/2.32',
  'okhttp/4.12',
  'Java/17.0.2',
  'node',
  'Go-http-client/2.0',
];

/** Probabilities per key and year: a new hosting provider, a day on a second line, a developer with the key at home. */
const yearly = { move: 0.01, secondLine: 0.01, atHome: 0.01 };

type Kind = 'server' | 'cloud' | 'mobile' | 'phones' | 'payroll';

/** A merchant's key and how it is used. Times are in milliseconds since 1970. */
export interface Subject {
  readonly kind: Kind;
  readonly country: string;
  readonly from: number;
  /** When the merchant stops using the key; Infinity if it does not. */
  readonly stops: number;
  readonly agent: string;
  origins: Origin[];
  readonly perDay: number;
  readonly peak: { readonly days: readonly number[]; readonly requests: number; readonly hours: number } | null;
  readonly closed: readonly [from: number, to: number];
  readonly nightJob: { readonly hour: number; readonly requests: number } | null;
  readonly campaign: { readonly from: number; readonly to: number; readonly factor: number } | null;
  readonly newRegion: { readonly at: number; readonly origins: readonly Origin[] } | null;
  readonly move: { readonly at: number; readonly origins: readonly Origin[] } | null;
  readonly secondLine: { readonly at: number; readonly origin: Origin } | null;
  readonly atHome: { readonly at: number; readonly origin: Origin } | null;
  /** Origin of a mobile router until it gets another address. */
  router: { origin: Origin; until: number } | null;
}

/** Returns a random address of an AS. Each AS has `blocks` blocks of 254 addresses, placed according to its number. */
export function addressIn(draws: Draws, asNumber: number, blocks = 40_000): string {
  const block = (Math.imul(asNumber, 2_654_435_761) >>> 0) + draws.below(blocks);
  return `${20 + ((block >>> 16) % 180)}.${(block >>> 8) & 0xff}.${block & 0xff}.${1 + draws.below(254)}`;
}

function originIn(draws: Draws, country: string, asNumber: number): Origin {
  return { address: addressIn(draws, asNumber), country, asNumber };
}

/** Draws an origin of a person, as opposed to a server: an address in one of the country's `networks`. */
export function peopleIn(draws: Draws, country: string): Origin {
  return originIn(draws, country, draws.weighted(networks[country] ?? []));
}

/** Draws one key of a merchant. */
export function drawSubject(draws: Draws, start: number, weeks: number): Subject {
  const end = start + weeks * 7 * dayMilliseconds;
  const kind = draws.weighted<Kind>([
    ['server', 57],
    ['cloud', 22],
    ['mobile', 14],
    ['phones', 2],
    ['payroll', 5],
  ]);
  const country = draws.weighted(countries);
  const sometime = (): number => draws.between(start, end);
  const happens = (perYear: number): boolean => draws.isTrue((perYear * weeks) / 52);
  const servers = (): Origin[] => {
    const asNumber = kind === 'cloud' ? draws.weighted(clouds) : draws.pick(hosters[country] ?? []);
    const where = kind === 'cloud' ? draws.pick(regions) : country;
    const count = kind === 'cloud' ? draws.whole(1, 12) : draws.whole(1, 3);
    return Array.from({ length: count }, () => originIn(draws, where, asNumber));
  };
  const origins = kind === 'mobile' || kind === 'phones' ? [] : servers();
  const perDay = kind === 'payroll' ? 0 : Math.min(60_000, draws.logNormal(kind === 'mobile' ? 60 : 250, 1.4));
  const monthEnd = draws.pick([[25], [26], [27], [28], [30], [14, 28], [1]]);
  const hasPeak = kind === 'payroll' || draws.isTrue(0.1);
  const closes = draws.isTrue(0.15) ? sometime() : Infinity;
  const asOf = origins[0]?.asNumber ?? 0;
  const region = draws.pick(regions);
  return {
    ...{ kind, country, perDay, origins, agent: draws.pick(agents), router: null },
    from: draws.isTrue(0.1) ? draws.between(start, start + (end - start) * 0.75) : start,
    stops: draws.isTrue(0.08) ? draws.between(start + 10 * dayMilliseconds, end) : Infinity,
    peak: hasPeak ? { days: monthEnd, requests: draws.logNormal(400, 1.1), hours: draws.whole(1, 4) } : null,
    closed: [closes, closes + draws.between(7, 21) * dayMilliseconds],
    nightJob: draws.isTrue(0.2) ? { hour: draws.below(5), requests: draws.whole(20, 400) } : null,
    campaign: draws.isTrue(0.1) ? campaignAt(sometime(), draws.between(2, 6), draws.whole(1, 5)) : null,
    newRegion:
      kind === 'cloud' && draws.isTrue(0.05)
        ? { at: sometime(), origins: Array.from({ length: draws.whole(1, 6) }, () => originIn(draws, region, asOf)) }
        : null,
    move: origins.length > 0 && happens(yearly.move) ? { at: sometime(), origins: servers() } : null,
    secondLine: happens(yearly.secondLine) ? { at: sometime(), origin: peopleIn(draws, country) } : null,
    atHome: happens(yearly.atHome) ? { at: sometime(), origin: peopleIn(draws, country) } : null,
  };
}

function campaignAt(from: number, factor: number, days: number) {
  return { from, to: from + days * dayMilliseconds, factor };
}

const byHour = [1, 1, 1, 1, 1, 2, 4, 7, 10, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7, 6, 5, 4, 3, 2].map((one) => one / 144);
const publicHolidays = ['01-01', '01-02', '05-01', '06-12', '10-01', '12-25', '12-26'];

/** Draws the requests of a key in one hour. */
export function* drawHour(draws: Draws, subject: Subject, hour: number): Iterable<Requests> {
  if (hour < subject.from || hour >= subject.stops) return;
  if (hour >= subject.closed[0] && hour < subject.closed[1]) return;
  const date = new Date(hour);
  const [utcHour, day] = [date.getUTCHours(), date.getUTCDate()];
  const isHoliday = publicHolidays.includes(date.toISOString().slice(5, 10));
  const isWeekend = date.getUTCDay() % 6 === 0;
  const isPayday = day >= 25 || day <= 1;
  const { campaign, peak, nightJob } = subject;
  const factor =
    (isHoliday ? 0.15 : isWeekend ? 0.5 : 1) *
    (isPayday ? 1.8 : 1) *
    (campaign !== null && hour >= campaign.from && hour < campaign.to ? campaign.factor : 1);
  let mean = subject.perDay * (byHour[utcHour] ?? 0) * factor;
  if (nightJob?.hour === utcHour) mean += nightJob.requests;
  if (peak !== null && peak.days.includes(day) && utcHour >= 9 && utcHour < 9 + peak.hours)
    mean += (peak.requests / peak.hours) * draws.between(0.7, date.getUTCMonth() === 11 ? 2.5 : 1.4);
  const count = draws.count(mean);
  if (count > 0) yield* spread(draws, subject, hour, count);
  if (isAt(subject.atHome?.at, hour) && subject.atHome !== null)
    yield {
      at: hour + 60_000,
      count: draws.whole(1, 20),
      origin: subject.atHome.origin,
      agent: 'curl/8.5.0',
      code: 'accepted',
    };
}

function isAt(at: number | undefined, hour: number): boolean {
  return at !== undefined && at >= hour && at < hour + hourMilliseconds;
}

/** Distributes the requests of an hour over origins. */
function* spread(draws: Draws, subject: Subject, hour: number, count: number): Iterable<Requests> {
  const { agent, kind, country, secondLine } = subject;
  // One hour in 300 has a fault: requests fail, and are sent again.
  const faults = draws.isTrue(1 / 300) ? draws.count(count * draws.between(0.1, 3)) : 0;
  const origins = [...originsAt(draws, subject, hour)];
  if (kind === 'phones') {
    const phones = Math.min(count, 60);
    for (let phone = 0; phone < phones; phone += 1) origins.push(peopleIn(draws, country));
  }
  if (secondLine !== null && hour >= secondLine.at && hour < secondLine.at + dayMilliseconds)
    origins.splice(0, origins.length, secondLine.origin);
  const used = Math.min(origins.length, count);
  for (let at = 0; at < used; at += 1) {
    const origin = origins[at];
    const share = Math.floor(count / used) + (at < count % used ? 1 : 0);
    if (origin !== undefined)
      yield { at: hour + draws.below(hourMilliseconds), count: share, origin, agent, code: 'accepted' };
  }
  const [first] = origins;
  if (faults > 0 && first !== undefined)
    yield { at: hour + draws.below(hourMilliseconds), count: faults, origin: first, agent, code: 'upstream_failed' };
}

function originsAt(draws: Draws, subject: Subject, hour: number): readonly Origin[] {
  const { kind, country, newRegion, move } = subject;
  if (move !== null && hour >= move.at) return move.origins;
  if (kind === 'mobile') {
    if (subject.router === null || subject.router.until <= hour) {
      const until = hour + draws.between(2, 36) * hourMilliseconds;
      subject.router = { origin: peopleIn(draws, country), until };
    }
    return [subject.router.origin];
  }
  if (kind === 'cloud' && draws.isTrue(1 / 50)) {
    // A machine is replaced by another one in the same region.
    const [first, ...rest] = subject.origins;
    if (first !== undefined) subject.origins = [...rest, originIn(draws, first.country, first.asNumber)];
  }
  return newRegion !== null && hour >= newRegion.at ? [...subject.origins, ...newRegion.origins] : subject.origins;
}
