import { dayMilliseconds, hourMilliseconds } from '../../../src/usage/batch.js';
import type { Draws } from './draws.js';
import { addressIn, type Origin, peopleIn, type Requests, type Subject } from './traffic.js';

/** The classes of planted misuse. */
export const misuseClasses = ['new country', 'woken key', 'surge', 'spread'] as const;

/** A class of planted misuse. */
export type MisuseClass = (typeof misuseClasses)[number];

const elsewhere = [
  ...['RU', 'UA', 'RO', 'BR', 'VN', 'ID', 'IN', 'CN', 'TR', 'PK', 'BD', 'MA', 'EG', 'SN', 'CI', 'CM', 'PL', 'BG', 'MX'],
  ...['US', 'NL', 'DE', 'FR', 'GB', 'SE', 'HK', 'SG', 'JP', 'TH', 'PH', 'MY', 'AE', 'IL', 'CA', 'ES', 'IT', 'PT', 'AR'],
];
const tools = ['curl/8.5.0', 'python-requests/2.31.0', 'Go-http-client/1.1', 'PostmanRuntime/7.39', 'Mozilla/5.0'];
const cloudNumbers = [16509, 8075, 15169];

/** Draws an attacker's place: a machine at a cloud or another hosting provider, or a home connection. */
function attackerIn(draws: Draws, country: string): Origin {
  const asNumber = draws.isTrue(0.15)
    ? draws.pick(cloudNumbers)
    : 200_000 + elsewhere.indexOf(country) * 20 + draws.below(20);
  return { address: addressIn(draws, asNumber), country, asNumber };
}

/** The requests of one misuse, in order, and the time of the first request that shows it to be a misuse. */
export interface Misuse {
  readonly of: MisuseClass;
  readonly requests: readonly Requests[];
  readonly shownAt: number;
}

/** The numbers that decide which request first shows a misuse, e.g. ten times the requests of the busiest hour. */
const shows = { surgeFactor: 10, surgeRequests: 200, newAddresses: 20 };

/**
 * Draws a misuse of the class `of` that begins at the time `at`.
 * @param busiestHour the most accepted requests of the merchant itself in an hour
 */
export function drawMisuse(draws: Draws, of: MisuseClass, subject: Subject, at: number, busiestHour: number): Misuse {
  if (of === 'surge') return surge(draws, subject, at, busiestHour);
  if (of === 'spread') return spreadOver(draws, subject, at);
  // An attacker with an idle key may be in the merchant's country. An attacker of the class `new country` never is.
  const usual = new Set([subject.country, ...subject.origins.map(({ country }) => country)]);
  const foreign = elsewhere.filter((country) => !usual.has(country));
  const isNear = of === 'woken key' && draws.isTrue(0.5);
  const origin = isNear ? peopleIn(draws, subject.country) : attackerIn(draws, draws.pick(foreign));
  const agent = draws.isTrue(0.25) ? subject.agent : draws.pick(tools);
  const code =
    of === 'new country' && draws.isTrue(0.3) ? draws.pick(['permission_denied', 'ip_not_allowed']) : 'accepted';
  const total = draws.whole(1, 200);
  const pause = draws.between(200, 20_000);
  const requests = Array.from({ length: total }, (_, index) => ({
    ...{ at: at + Math.floor(index * pause), count: 1, origin, agent, code },
  }));
  return { of, requests, shownAt: at };
}

/** An attacker who controls the merchant's server sends many requests from it. */
function surge(draws: Draws, subject: Subject, at: number, busiestHour: number): Misuse {
  const perHour = Math.max(busiestHour * draws.between(12, 100), draws.whole(300, 3_000));
  const origin = subject.origins[0] ?? subject.router?.origin ?? peopleIn(draws, subject.country);
  const requests: Requests[] = [];
  let shownAt = Infinity;
  for (let second = 0, sent = 0, hour = 0; second < 90 * 60; second += 1) {
    const now = at + second * 1_000;
    const isNextHour = Math.floor(now / hourMilliseconds) !== hour;
    hour = Math.floor(now / hourMilliseconds);
    const count = draws.count(perHour / 3_600);
    sent = (isNextHour ? 0 : sent) + count;
    if (count > 0) requests.push({ at: now, count, origin, agent: subject.agent, code: 'accepted' });
    if (sent > Math.max(shows.surgeFactor * busiestHour, shows.surgeRequests)) shownAt = Math.min(shownAt, now);
  }
  return { of: 'surge', requests, shownAt };
}

/** A published key is tried by many people, or by one person through many home connections. */
function spreadOver(draws: Draws, subject: Subject, at: number): Misuse {
  const isNear = draws.isTrue(0.5);
  const agent = draws.isTrue(0.25) ? subject.agent : draws.pick(tools);
  const times = Array.from({ length: draws.whole(40, 300) }, () => at + draws.below(50 * 60_000)).sort((a, b) => a - b);
  const requests = times.map((time): Requests => {
    const origin = isNear ? peopleIn(draws, subject.country) : attackerIn(draws, draws.pick(elsewhere));
    return { at: time, count: draws.whole(1, 5), origin, agent, code: 'accepted' };
  });
  let shownAt = Infinity;
  for (const first of times) {
    const hour = Math.floor(first / hourMilliseconds);
    const inHour = times.filter((time) => Math.floor(time / hourMilliseconds) === hour);
    shownAt = Math.min(shownAt, inHour[shows.newAddresses - 1] ?? Infinity);
  }
  return { of: 'spread', requests, shownAt };
}

/** How long a key has to be idle before its use is a misuse of the class `woken key`. */
export const wokenAfterMilliseconds = 30 * dayMilliseconds;
