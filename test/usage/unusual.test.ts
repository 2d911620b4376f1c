import t from 'tap';
import { dayMilliseconds, hourMilliseconds } from '../../src/usage/batch.js';
import { loadConfig } from '../../src/config/load.js';
import type { KeyState } from '../../src/usage/unusual/key-state.js';
import type { Finding, Thresholds } from '../../src/usage/unusual/finding.js';
import { observe } from '../../src/usage/unusual/observe.js';
import { type GivenRequests, keyUsage } from './key-usage.js';

const thresholds: Thresholds = loadConfig({}).registry.unusual;
/** A Monday in the week after a usual payday. */
const start = Date.UTC(2026, 2, 2, 9);
const day = (number: number, hour = 0): number => start + number * dayMilliseconds + hour * hourMilliseconds;

/** A key whose batches a test observes one after the other. */
class Key {
  state: KeyState | null = null;
  readonly found: Finding[] = [];

  use(requests: Omit<GivenRequests, 'at'> & { readonly at: number }, options: Partial<Thresholds> = {}): Finding[] {
    return this.useAll([requests], requests.at + 1_000, options);
  }

  useAll(
    requests: readonly GivenRequests[],
    now: number,
    options: Partial<Thresholds> = {},
    watchedSince = start,
  ): Finding[] {
    const moment = { now, from: now - 1_000, watchedSince };
    const observed = observe(this.state, keyUsage('k', requests), moment, { ...thresholds, ...options });
    // The registry stores the state as JSON.
    this.state = JSON.parse(JSON.stringify(observed.state)) as KeyState;
    this.found.push(...observed.findings);
    return [...observed.findings];
  }

  /** Uses the key every day at nine, ten times, from its usual place. */
  useDaily(days: number, further: Partial<GivenRequests> = {}, from = 0): this {
    for (let number = from; number < from + days; number += 1) this.use({ at: day(number), count: 10, ...further });
    return this;
  }
}

const rulesOf = (findings: readonly Finding[]): string[] => findings.map(({ pattern }) => pattern);

t.test('a country that a key never used is reported once, also if the request is refused', (t) => {
  for (const code of ['accepted', 'permission_denied']) {
    const key = new Key().useDaily(10);
    const [finding] = key.use({ at: day(10), country: 'KE', asNumber: 64_999, address: '198.51.100.1', code });
    t.match(finding, { rule: 'new-country', pattern: 'new-country:KE', address: '198.51.100.1', asNumber: 64_999 });
    t.match(finding?.message, /first use in KE, from 198\.51\.100\.1 \(AS64999\)/);
    t.same(key.use({ at: day(10, 1), country: 'KE', asNumber: 64_999, address: '198.51.100.2', code }), []);
  }
  t.end();
});

t.test('a country is not reported in the first week, without GeoIP, or of a key that roams', (t) => {
  t.same(new Key().useDaily(6).use({ at: day(6), country: 'KE', asNumber: 64_999, address: '198.51.100.1' }), []);
  const without = { country: null, asNumber: null };
  t.same(new Key().useDaily(20, without).use({ at: day(20), ...without, address: '198.51.100.1' }), []);
  const abroad = new Key().useDaily(8);
  abroad.state = new Key().useDaily(3).state;
  abroad.use({ at: day(3), country: 'GH', asNumber: 64_700, address: '192.0.2.1' });
  abroad.useDaily(7, {}, 4);
  t.same(abroad.use({ at: day(11), country: 'KE', asNumber: 64_999, address: '198.51.100.1' }), [], 'one day in GH');
  t.end();
});

t.test('GeoIP that was added lately is learned first', (t) => {
  const key = new Key().useDaily(30, { country: null, asNumber: null });
  t.same(key.use({ at: day(30) }), []);
  t.same(key.use({ at: day(31), country: 'KE', asNumber: 64_999, address: '198.51.100.1' }), []);
  t.end();
});

t.test('a new region of the same provider is not reported, unless the program is new', (t) => {
  const region = { country: 'ZA', address: '198.51.100.1' };
  t.same(new Key().useDaily(10).use({ at: day(10), ...region }), []);
  const other = new Key().useDaily(10).use({ at: day(10), ...region, agent: 'curl/8.5' });
  t.same(rulesOf(other), ['new-country:ZA']);
  t.end();
});

t.test('a new network in a known country is reported, but not of a mobile connection', (t) => {
  const other = { asNumber: 64_999, address: '198.51.100.1' };
  t.same(rulesOf(new Key().useDaily(10).use({ at: day(10), ...other })), ['new-network:AS64999']);
  const mobile = new Key().useDaily(5).useDaily(3, { asNumber: 64_501, address: '192.0.2.9' }, 5);
  t.same(mobile.use({ at: day(9), ...other }), []);
  t.same(new Key().useDaily(4).use({ at: day(20), ...other }), [], 'used on few days');
  t.end();
});

t.test('without AS numbers, a network is a range of addresses', (t) => {
  const without = { asNumber: null };
  const key = new Key().useDaily(10, without);
  t.same(key.use({ at: day(10), ...without, address: '203.0.200.1' }), [], 'the same 16 bits');
  t.same(rulesOf(key.use({ at: day(11), ...without, address: '198.51.100.1' })), ['new-network:198.51.0.0/16']);
  const v6 = new Key().useDaily(10, { ...without, address: '2001:db8::1' });
  t.same(rulesOf(v6.use({ at: day(10), ...without, address: '2001:db9::1' })), ['new-network:2001:db9::/32']);
  t.end();
});

t.test('a replaced GeoIP database is no new country for a known address', (t) => {
  t.same(new Key().useDaily(10).use({ at: day(10), country: 'GB', asNumber: 64_999 }), []);
  t.end();
});

t.test('a flood of places does not displace the usual ones', (t) => {
  const key = new Key().useDaily(30);
  const flood = Array.from({ length: 80 }, (_, number) => ({
    ...{ at: day(30, 1), country: 'KE', asNumber: 70_000 + number, address: `198.${number}.100.1` },
  }));
  key.useAll(flood, day(30, 1) + 1_000);
  t.same(key.use({ at: day(31) }), []);
  t.end();
});

t.test('the use of a key after 30 idle days is reported', (t) => {
  t.match(new Key().useDaily(10).use({ at: day(40) }), [{ rule: 'idle-key', message: /after 31 days/ }]);
  t.same(new Key().useDaily(10).use({ at: day(38) }), [], '29 days: holidays');
  t.same(new Key().useDaily(2).use({ at: day(35) }), [], 'payroll once a month');
  t.match(new Key().useDaily(2).use({ at: day(60) }), [{ rule: 'idle-key' }], 'too long for payroll');
  const seasonal = new Key().useDaily(10);
  seasonal.useDaily(10, {}, 50);
  t.same(rulesOf(seasonal.found), ['idle-key']);
  seasonal.use({ at: day(105) });
  t.same(rulesOf(seasonal.found), ['idle-key'], 'as long as the gap before');
  t.end();
});

t.test('a key is not idle while no usage was observed', (t) => {
  const key = new Key().useDaily(10);
  t.same(key.useAll([{ at: day(60) }], day(60) + 1_000, {}, day(59)), []);
  t.end();
});

t.test('ten times the busiest hour is reported as soon as the count shows it', (t) => {
  const key = new Key().useDaily(20, { count: 40 });
  t.same(key.use({ at: day(20, 2), count: 400 }), [], 'not more than ten times');
  t.match(key.use({ at: day(20, 2) + 60_000, count: 1 }), [
    { rule: 'surge', message: /^401 accepted.*before had 40$/ },
  ]);
  t.same(key.use({ at: day(20, 2) + 120_000, count: 100 }), [], 'once');
  const small = new Key().useDaily(20, { count: 2 });
  t.same(small.use({ at: day(20, 2), count: 199 }), [], 'a small key');
  t.end();
});

t.test('a surge that begins at the end of an hour is compared with the hours before it', (t) => {
  const key = new Key().useDaily(20, { count: 40 });
  t.same(key.use({ at: day(20, 2), count: 390 }), []);
  t.match(key.use({ at: day(20, 3), count: 500 }), [{ rule: 'surge' }]);
  t.end();
});

t.test('the first payroll is no surge: salaries are paid on usual days', (t) => {
  // Day 23 after March 2 is March 25.
  t.same(new Key().useDaily(23, { count: 40 }).use({ at: day(23, 2), count: 900 }), []);
  const known = new Key().useDaily(54, { count: 40 });
  t.match(known.use({ at: day(54, 2), count: 900 }), [{ rule: 'surge' }], 'later it would be');
  t.end();
});

t.test('a late batch with the counts of many hours is no surge', (t) => {
  const key = new Key().useDaily(20, { count: 40 });
  const outage = Array.from({ length: 24 }, (_, hour) => ({ at: day(20, hour), count: 40 }));
  t.same(key.useAll(outage, day(21) + 1_000), []);
  t.same(key.use({ at: day(20, 5), count: 40 }), [], 'a batch of another gateway, out of order');
  t.end();
});

t.test('many new addresses within an hour are reported', (t) => {
  const spread = (from: number, count: number): GivenRequests[] =>
    Array.from({ length: count }, (_, number) => ({ at: day(10, from), address: `203.${from}.${number}.1` }));
  const key = new Key().useDaily(10);
  t.same(key.useAll(spread(1, 19), day(10, 1) + 1_000), []);
  t.match(key.useAll([{ at: day(10, 1), address: '203.99.1.1' }], day(10, 1) + 2_000), [
    { rule: 'new-addresses', message: /^20 new address blocks / },
  ]);
  const phones = new Key();
  for (let number = 0; number < 10; number += 1)
    phones.useAll(
      Array.from({ length: 15 }, (_, at) => ({ at: day(number), address: `203.${number}.${at}.1` })),
      day(number) + 1_000,
    );
  t.same(phones.useAll(spread(30, 30), day(11, 6) + 1_000), [], 'twice as many as usual');
  t.end();
});

t.test('a burst of refusals after success is reported', (t) => {
  const key = new Key().useDaily(10);
  t.match(key.use({ at: day(9, 2), code: 'permission_denied', count: 30 }), [{ rule: 'refusals' }]);
  const failing = new Key().useDaily(10);
  t.same(failing.use({ at: day(9, 2), code: 'upstream_failed', count: 300 }), [], 'a failure of a service');
  t.same(failing.use({ at: day(9, 2), code: 'key_inactive', count: 300 }), [], 'a revocation');
  t.same(failing.use({ at: day(12), code: 'permission_denied', count: 300 }), [], 'not in use');
  t.end();
});

t.test('Tor and plain HTTP are reported from the first request on, also of a key that was not looked up', (t) => {
  const moment = { now: day(0) + 62_000, from: day(0) + 61_000, watchedSince: start };
  for (const [code, rule] of [
    ['tor_blocked', 'tor'],
    ['https_required', 'plain-http'],
  ] as const) {
    const first = observe(null, keyUsage(null, [{ at: day(0), code }], 'lookup'), moment, thresholds);
    t.match(first.findings, [{ rule, pattern: rule, at: moment.from }], 'the second, not the hour');
    const again = observe(first.state, keyUsage(null, [{ at: day(0), code }], 'lookup'), moment, thresholds);
    t.same(again.findings, []);
    const later = { ...moment, now: day(8) };
    t.equal(observe(first.state, keyUsage(null, [{ at: day(8), code }], 'l'), later, thresholds).findings.length, 1);
    for (const [ahead, count] of [
      [-1, 0],
      [0, 1],
    ] as const) {
      const inAWeek = { ...moment, now: moment.now + 7 * dayMilliseconds + ahead };
      const { findings } = observe(first.state, keyUsage(null, [{ at: day(7), code }], 'l'), inAWeek, thresholds);
      t.equal(findings.length, count, `${ahead} ms after a week`);
    }
  }
  t.end();
});

t.test('a request that was refused before the key was looked up shows no place', (t) => {
  const { state } = new Key().useDaily(10);
  const usage = keyUsage('k', [{ at: day(10), ...{ country: 'KE', asNumber: 64_999 }, code: 'tor_blocked' }], 'lookup');
  const { findings } = observe(state, usage, { now: day(10) + 1_000, from: day(10), watchedSince: start }, thresholds);
  t.same(rulesOf(findings), ['tor'], 'the registry has added the id of the key');
  t.end();
});

t.test('networks that are stored in place of addresses are compared too', (t) => {
  const key = new Key().useDaily(10, { address: '203.0.113.0/24', asNumber: null });
  t.same(key.use({ at: day(10), address: '203.0.114.0/24', asNumber: null }), []);
  t.same(rulesOf(key.use({ at: day(11), address: '198.51.100.0/24', asNumber: null })), ['new-network:198.51.0.0/16']);
  t.end();
});

t.test('a rule that is off reports nothing, and times of the future do not count', (t) => {
  const other = { country: 'KE', asNumber: 64_999, address: '198.51.100.1' };
  t.same(new Key().useDaily(10).use({ at: day(10), ...other }, { off: ['new-country', 'new-network'] }), []);
  t.same(new Key().useDaily(10).useAll([{ at: day(300), ...other, count: 1_000 }], day(10)), []);
  t.end();
});

t.test('the state of a key stays small, whatever the key does', (t) => {
  const key = new Key();
  for (let number = 0; number < 200; number += 1) {
    const requests = Array.from({ length: 300 }, (_, at) => ({
      at: day(number),
      address: `${20 + number}.${at % 250}.${number}.1`,
      country: `${number % 90}`,
      asNumber: number * 1_000 + at,
      agent: `agent-${number}-${'x'.repeat(300)}/${at}`,
      code: at % 2 === 0 ? 'accepted' : 'tor_blocked',
    }));
    key.useAll(requests, day(number) + 1_000);
  }
  t.ok(JSON.stringify(key.state).length < 16_384, `${JSON.stringify(key.state).length}`);
  t.end();
});
