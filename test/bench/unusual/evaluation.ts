import { dayMilliseconds, hourMilliseconds, type KeyUsage } from '../../../src/usage/batch.js';
import type { KeyState } from '../../../src/usage/unusual/key-state.js';
import type { Finding, Thresholds, UnusualRule } from '../../../src/usage/unusual/finding.js';
import { observe } from '../../../src/usage/unusual/observe.js';
import { Draws } from './draws.js';
import { drawMisuse, type Misuse, type MisuseClass, misuseClasses, wokenAfterMilliseconds } from './misuse.js';
import { drawHour, drawSubject, type Requests, type Subject } from './traffic.js';

/** What to simulate. */
export interface Scenario {
  readonly seed: number;
  readonly merchants: number;
  readonly weeks: number;
  /** How many misuses of each class to plant. */
  readonly planted: number;
  readonly thresholds: Thresholds;
}

/** The result of a simulation. */
export interface Evaluation {
  readonly keys: number;
  readonly keyWeeks: number;
  readonly requests: number;
  /**
   * For each class of misuse: how many were planted, how many were reported within 60 s, and how many were reported by
   * the rule for their class, even later. `seconds` has the delay of the first report of each reported misuse.
   */
  readonly classes: Readonly<
    Record<MisuseClass, { planted: number; found: number; byOwnRule: number; seconds: number[] }>
  >;
  readonly falseReports: Readonly<Record<string, number>>;
}

const ownRules: Readonly<Record<MisuseClass, UnusualRule>> = {
  ...{ 'new country': 'new-country', 'woken key': 'idle-key', surge: 'surge', spread: 'new-addresses' },
};
const gateways = 3;
const reportedWithinMilliseconds = 60_000;
/** Findings about a key belong to a misuse until this time after its end. */
const afterMilliseconds = hourMilliseconds;
/** Misuse begins after these weeks, because only then a key can have been idle for 30 days. */
const quietWeeks = 5;

/** Simulates the traffic of merchants with planted misuse, and observes it as the registry would. */
export function evaluate({ seed, merchants, weeks, planted, thresholds }: Scenario): Evaluation {
  const draws = new Draws(seed);
  const start = Date.UTC(2026, 0, 5) + 7 * draws.below(52) * dayMilliseconds;
  const end = start + weeks * 7 * dayMilliseconds;
  const subjects = Array.from({ length: merchants }, () => (draws.isTrue(0.3) ? 2 : 1)).flatMap((keys) =>
    Array.from({ length: keys }, () => drawSubject(draws, start, weeks)),
  );
  const plan = planned(draws, subjects, { start, end, planted });
  const classes = Object.fromEntries(
    misuseClasses.map((of) => [of, { planted: 0, found: 0, byOwnRule: 0, seconds: [] }]),
  ) as unknown as Record<MisuseClass, { planted: number; found: number; byOwnRule: number; seconds: number[] }>;
  const falseReports: Record<string, number> = {};
  let [keyWeeks, requests] = [0, 0];
  for (const [index, subject] of subjects.entries()) {
    // Each key has its own random numbers, so that a change for one key does not affect the other keys.
    const run = new KeyRun(new Draws(seed * 1_000_003 + index), subject, start, thresholds);
    const misuse = run.simulate(plan.get(subject) ?? null, { start, end });
    keyWeeks += (end - subject.from) / (7 * dayMilliseconds);
    requests += run.requests;
    for (const { finding } of run.found.filter(({ at }) => misuse === null || !belongs(at, misuse)))
      falseReports[finding.rule] = (falseReports[finding.rule] ?? 0) + 1;
    if (misuse === null) continue;
    const own = classes[misuse.of];
    own.planted += 1;
    const first = run.found.find(({ at }) => belongs(at, misuse));
    if (first === undefined) continue;
    own.seconds.push(Math.max(0, first.at - misuse.shownAt) / 1_000);
    if (first.at - misuse.shownAt <= reportedWithinMilliseconds) own.found += 1;
    if (run.found.some(({ at, finding }) => belongs(at, misuse) && finding.rule === ownRules[misuse.of]))
      own.byOwnRule += 1;
  }
  return { keys: subjects.length, keyWeeks, requests, classes, falseReports };
}

function belongs(at: number, { requests }: Misuse): boolean {
  const [first, last] = [requests[0]?.at ?? 0, requests.at(-1)?.at ?? 0];
  return at >= first && at <= last + afterMilliseconds;
}

interface Planned {
  readonly of: MisuseClass;
  readonly at: number;
}

/**
 * Chooses times for the misuse, and keys that have been in use for at least a week. For the class `woken key`, it
 * chooses keys that their merchants no longer use.
 */
function planned(
  draws: Draws,
  subjects: readonly Subject[],
  { start, end, planted }: { start: number; end: number; planted: number },
): Map<Subject, Planned> {
  const plan = new Map<Subject, Planned>();
  const earliest = start + quietWeeks * 7 * dayMilliseconds;
  for (const of of misuseClasses) {
    for (let made = 0, tries = 0; made < planted && tries < 1_000_000; tries += 1) {
      const subject = draws.pick(subjects);
      if (plan.has(subject)) continue;
      if (of === 'woken key') {
        // The key was used for at least ten days; then its merchant gave it up.
        const stops = start + draws.between(10, 24) * dayMilliseconds;
        if (subject.from > start || subject.kind === 'payroll' || subject.closed[0] < stops) continue;
        const least = Math.max(earliest, stops + wokenAfterMilliseconds);
        const stopped = { ...subject, stops };
        (subjects as Subject[])[subjects.indexOf(subject)] = stopped;
        plan.set(stopped, { of, at: draws.between(least, end - 2 * hourMilliseconds) });
      } else {
        const at = draws.between(earliest, end - 2 * hourMilliseconds);
        if (subject.from > at - 7 * dayMilliseconds || subject.stops < at) continue;
        plan.set(subject, { of, at });
      }
      made += 1;
    }
  }
  return plan;
}

/** A finding, and when it was reported. */
interface Reported {
  readonly at: number;
  readonly finding: Finding;
}

/** The simulation of one key. */
class KeyRun {
  readonly #draws: Draws;
  readonly #subject: Subject;
  readonly #watchedSince: number;
  readonly #thresholds: Thresholds;
  #state: KeyState | null = null;
  /** Requests that gateway `of` has counted but cannot send before the time `until`. Null if no gateway is delayed. */
  #held: { readonly until: number; readonly of: number; readonly requests: Requests[] } | null = null;
  #perHour: number[] = [];
  #busiest = 0;
  requests = 0;
  readonly found: Reported[] = [];

  constructor(draws: Draws, subject: Subject, watchedSince: number, thresholds: Thresholds) {
    this.#draws = draws;
    this.#subject = subject;
    this.#watchedSince = watchedSince;
    this.#thresholds = thresholds;
  }

  simulate(plan: Planned | null, { start, end }: { start: number; end: number }): Misuse | null {
    let misuse: Misuse | null = null;
    for (let hour = start; hour < end; hour += hourMilliseconds) {
      if (plan !== null && misuse === null && plan.at < hour + hourMilliseconds)
        misuse = drawMisuse(this.#draws, plan.of, this.#subject, plan.at, this.#busiest);
      const own = [...drawHour(this.#draws, this.#subject, hour)];
      const planted = (misuse?.requests ?? []).filter(({ at }) => at >= hour && at < hour + hourMilliseconds);
      this.#count(own);
      if (planted.length > 0) this.#bySecond([...own, ...planted]);
      else if (own.length > 0 || this.#held !== null) this.#byGateway(hour, own);
    }
    return misuse;
  }

  #count(own: readonly Requests[]): void {
    const accepted = own.filter(({ code }) => code === 'accepted').reduce((sum, { count }) => sum + count, 0);
    this.#perHour.push(accepted);
    this.#busiest = Math.max(this.#busiest, accepted);
    this.requests += accepted;
  }

  /**
   * For an hour without misuse: sends the requests in one batch from each gateway. The batches arrive in any order, and
   * sometimes a gateway sends its batch hours later.
   */
  #byGateway(hour: number, requests: readonly Requests[]): void {
    const draws = this.#draws;
    const first = draws.below(gateways);
    const parts = Array.from({ length: gateways }, (_, at) => ({
      gateway: (first + at) % gateways,
      own: [] as Requests[],
    }));
    for (const one of requests) {
      // Connections stay with a gateway, so a few requests from one origin all come through the same gateway.
      const shares = one.count < 6 ? 1 : gateways;
      const from = draws.below(gateways);
      for (let at = 0; at < shares; at += 1) {
        const count = Math.floor(one.count / shares) + (at < one.count % shares ? 1 : 0);
        parts[(from + at) % gateways]?.own.push({ ...one, count });
      }
    }
    const now = hour + hourMilliseconds;
    for (const { gateway, own } of parts) {
      if (this.#held?.of === gateway) {
        this.#held.requests.push(...own);
        if (now < this.#held.until) continue;
        this.#observe(this.#held.requests, now);
        this.#held = null;
      } else if (own.length > 0 && this.#held === null && draws.isTrue(1 / 2_000)) {
        this.#held = { until: now + draws.whole(1, 5) * hourMilliseconds, of: gateway, requests: own };
      } else if (own.length > 0) this.#observe(own, now - draws.below(10_000));
    }
  }

  /** For an hour with misuse: sends each request separately, within three seconds, like a real gateway. */
  #bySecond(requests: readonly Requests[]): void {
    const sorted = requests.toSorted((one, other) => one.at - other.at);
    for (const one of sorted) this.#observe([one], one.at - (one.at % 1_000) + 1_000 + this.#draws.below(2_000));
  }

  #observe(requests: readonly Requests[], now: number): void {
    const from = Math.min(...requests.map(({ at }) => at));
    const moment = { now, from, watchedSince: this.#watchedSince };
    const { state, findings } = observe(this.#state, usageOf(requests), moment, this.#thresholds);
    this.#state = state;
    for (const finding of findings) this.found.push({ at: now, finding });
  }
}

function usageOf(requests: readonly Requests[]): KeyUsage {
  const codes = new Map<string, KeyUsage['codes'][number]>();
  const addresses = new Map<string, KeyUsage['addresses'][number]>();
  const agents = new Map<string, number>();
  let lastUse: KeyUsage['lastUse'] = null;
  const zeros = { totalMilliseconds: 0, slowestMilliseconds: 0, requestBytes: 0, responseBytes: 0 };
  for (const { at, count, origin, agent, code } of requests) {
    const hour = at - (at % hourMilliseconds);
    const day = at - (at % dayMilliseconds);
    const isAccepted = code === 'accepted';
    const ofCode = codes.get(`${hour} ${code}`) ?? { hour, code, count: 0, ...zeros };
    codes.set(`${hour} ${code}`, { ...ofCode, count: ofCode.count + count });
    const name = `${day} ${origin.address}`;
    const row = addresses.get(name) ?? { day, ...origin, accepted: 0, refused: 0, firstAt: at, lastAt: at };
    addresses.set(name, {
      ...row,
      accepted: row.accepted + (isAccepted ? count : 0),
      refused: row.refused + (isAccepted ? 0 : count),
      firstAt: Math.min(row.firstAt, at),
      lastAt: Math.max(row.lastAt, at),
    });
    if (!isAccepted) continue;
    agents.set(agent, (agents.get(agent) ?? 0) + count);
    if (lastUse === null || lastUse.at < at) lastUse = { at, address: origin.address, country: origin.country };
  }
  return {
    ...{ keyId: 'key', merchantId: 'merchant', lookupId: null, lastUse },
    codes: [...codes.values()],
    addresses: [...addresses.values()],
    agents: [...agents].map(([agent, count]) => ({ day: 0, agent, count })),
  };
}
