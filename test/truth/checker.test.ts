import t from 'tap';
import { check, type Rule } from './checker.js';
import type { Asked, Change, Fault, HistoryEvent, Propagation, Restore, Verdict, Write } from './history.js';

const limits = { decideMilliseconds: 10_000, inForceMilliseconds: 35_000 };
const inForce: Propagation = { gateways: 2, confirmed: 2, pending: [] };
const pending: Propagation = { gateways: 2, confirmed: 1, pending: [{ instanceId: 'g2', staleUntil: null }] };

function change(begun: number, ended: number, writes: Write[], more: Partial<Change> = {}): Change {
  const what = { party: 'registry-1', action: 'a change', status: 200, propagation: inForce };
  return { kind: 'change', ...what, begun, ended, writes, ...more };
}

function asked(sent: number, verdict: Verdict, more: Partial<Asked> = {}): Asked {
  const who = { gateway: 'gateway-1', keyId: 'k', merchantId: 'm', status: verdict === 'accepted' ? 200 : 401 };
  return { kind: 'request', ...who, sent, received: sent + 10, verdict, ...more };
}

function fault(begun: number, ended: number, isolated: string[] = []): Fault {
  return { kind: 'fault', name: 'cut', what: 'cut gateway-1', begun, ended, isolated };
}

/**
 * A restore from a copy. `storeKeptSince` is the time since which Redis has lost nothing; by default, Redis has lost
 * records.
 */
function restore(copied: number, begun: number, storeKeptSince = Infinity): Restore {
  return { kind: 'restore', copyBegun: copied, copyEnded: copied + 10, begun, ended: begun + 10, storeKeptSince };
}

const created = (): HistoryEvent[] => [
  change(0, 10, [
    { register: 'status:m', value: 'ACTIVE' },
    { register: 'allowlist:m', value: 'open' },
  ]),
  change(20, 30, [{ register: 'key:k', value: 'active' }]),
];
const revoke = [{ register: 'key:k', value: 'revoked' }];
const status = (value: string): Write[] => [{ register: 'status:m', value }];

function rules(...events: HistoryEvent[]): Rule[] {
  return check([...created(), ...events], limits).violations.map(({ rule }) => rule);
}

const falsified: Record<string, [rule: Rule, events: HistoryEvent[]]> = {
  'a revoked key is accepted after "in force"': ['old-record', [change(100, 110, revoke), asked(111, 'accepted')]],
  'a revoked key is accepted by a gateway that starts later': [
    'old-record',
    [change(100, 110, revoke), asked(5000, 'inactive'), asked(6000, 'accepted', { gateway: 'gateway-2' })],
  ],
  'the key that a reset replaced is accepted': [
    'old-record',
    [change(100, 110, [...revoke, { register: 'key:new', value: 'active' }]), asked(200, 'accepted')],
  ],
  'a key is accepted before its merchant is active': [
    'old-record',
    [change(100, 110, status('INACTIVE')), asked(120, 'accepted'), change(200, 210, status('ACTIVE'))],
  ],
  'a key of an inactive merchant is accepted': [
    'old-record',
    [change(100, 110, status('INACTIVE')), asked(200, 'accepted')],
  ],
  'an address that was removed from the allowlist is accepted': [
    'old-record',
    [change(100, 110, [{ register: 'allowlist:m', value: 'closed' }]), asked(200, 'accepted')],
  ],
  'an older state returns after a later one': [
    'old-record',
    [
      fault(90, 3000),
      change(100, 110, status('INACTIVE')),
      change(200, 210, status('ACTIVE'), { propagation: pending }),
      change(300, 310, status('INACTIVE')),
      asked(400, 'accepted'),
    ],
  ],
  'a key is unknown although its creation was in force': ['good-key-refused', [asked(100, 'unknown')]],
  'a key that was never revoked is rejected as inactive': ['good-key-refused', [asked(100, 'inactive')]],
  'a key of an active merchant is rejected because of an inactive merchant': [
    'good-key-refused',
    [change(100, 110, status('INACTIVE')), change(200, 210, status('ACTIVE')), asked(300, 'merchantInactive')],
  ],
  'an isolated gateway accepts although the registry reported "in force"': [
    'not-counted',
    [
      fault(50, 9000, ['gateway-1']),
      change(100, 110, revoke, { propagation: { ...inForce, gateways: 0, confirmed: 0 } }),
      asked(200, 'accepted', { keyId: 'other', merchantId: 'm' }),
      change(5, 6, [{ register: 'key:other', value: 'active' }]),
    ],
  ],
  'a gateway is unable to decide for longer than the limit': [
    'undecided',
    [fault(50, 60), asked(10_100, 'unavailable', { status: 503 })],
  ],
  'a gateway is unable to decide although there was no fault': ['undecided', [asked(100, 'broken', { status: null })]],
  'a change takes longer than the limit to be in force': [
    'not-in-force',
    [fault(50, 60), change(35_100, 37_100, [], { propagation: pending })],
  ],
  'after a restore of the database, a key that was revoked again is accepted': [
    'old-record',
    [...[change(100, 110, revoke), restore(50, 200)], ...[change(300, 310, revoke), asked(400, 'accepted')]],
  ],
  'after a restore, a revoked key is accepted although Redis kept its record': [
    'old-record',
    [change(100, 110, revoke), restore(50, 200, 99), asked(300, 'accepted')],
  ],
  'after a restore, the key of an inactive merchant is accepted although Redis kept the record': [
    'old-record',
    [change(100, 110, status('INACTIVE')), restore(50, 200, 99), asked(300, 'accepted')],
  ],
  'after a second restore, a revoked key is accepted although Redis kept its record': [
    'old-record',
    [change(100, 110, revoke), restore(50, 200, 99), restore(50, 400, 99), asked(500, 'accepted')],
  ],
  'a gateway sends an undefined response': ['unexpected', [asked(100, 'other', { status: 500 })]],
};

for (const [what, [rule, events]] of Object.entries(falsified)) {
  t.test(`violation: ${what}`, (t) => {
    t.same(rules(...events), [rule]);
    t.end();
  });
}

const explained: Record<string, HistoryEvent[]> = {
  'a valid key is accepted': [asked(100, 'accepted')],
  'a request that began before "in force" was read': [change(100, 110, revoke), asked(109, 'accepted')],
  'a change that is not confirmed as in force may or may not apply': [
    change(100, 2100, revoke, { propagation: pending }),
    asked(3000, 'accepted'),
    asked(3000, 'inactive'),
    fault(90, 3000),
  ],
  'a call without a response may take effect until its registry stops': [
    fault(100, 1000),
    change(100, 900, status('INACTIVE'), { status: null, propagation: null }),
    change(910, 920, status('ACTIVE')),
    asked(950, 'merchantInactive'),
    { kind: 'ended', party: 'registry-1', at: 1000 },
    asked(1100, 'accepted'),
  ],
  'a key that is not yet in force may be unknown': [
    fault(90, 3000),
    change(100, 2100, [{ register: 'key:new', value: 'active' }], { propagation: pending }),
    asked(3000, 'unknown', { keyId: 'new' }),
    asked(3000, 'accepted', { keyId: 'new' }),
  ],
  'a restored database makes a key valid again, or loses it': [
    change(100, 110, revoke),
    restore(50, 200),
    asked(300, 'accepted'),
    restore(15, 400),
    asked(500, 'unknown'),
  ],
  'Redis lost something after the revocation, before the restore': [
    change(100, 110, revoke),
    restore(50, 200, 150),
    asked(300, 'accepted'),
  ],
  'Redis kept everything, and a change that was not yet in force is lost': [
    fault(90, 3000),
    change(100, 150, revoke, { propagation: pending }),
    restore(50, 200, 0),
    asked(300, 'accepted'),
  ],
  'Redis kept everything, and a revoked key is held back or unknown': [
    change(100, 110, revoke),
    restore(50, 200, 0),
    asked(300, 'inactive'),
    restore(5, 400, 0),
    asked(500, 'unknown'),
  ],
  'Redis kept everything, and a held-back merchant is changed': [
    change(100, 110, status('INACTIVE')),
    restore(50, 200, 0),
    asked(300, 'merchantInactive'),
    change(400, 410, status('ACTIVE')),
    asked(500, 'accepted'),
  ],
  'Redis kept everything, and the allowlist is that of the copy': [
    change(100, 110, [{ register: 'allowlist:m', value: 'closed' }]),
    restore(50, 200, 0),
    asked(300, 'accepted'),
  ],
  'an isolated gateway stops accepting before "in force" is reported': [
    fault(50, 9000, ['gateway-1']),
    asked(4000, 'accepted'),
    asked(6000, 'unavailable', { status: 503 }),
    change(7000, 7010, revoke),
  ],
  'a formerly isolated gateway accepts once it is connected again': [
    fault(50, 300, ['gateway-1']),
    change(100, 110, [{ register: 'key:other', value: 'active' }]),
    asked(295, 'accepted'),
  ],
  'a rejected change has no effect': [
    change(100, 110, revoke, { status: 404, propagation: null }),
    asked(200, 'accepted'),
  ],
};

for (const [what, events] of Object.entries(explained)) {
  t.test(`allowed: ${what}`, (t) => {
    t.same(check([...created(), ...events], limits).violations, []);
    t.end();
  });
}

t.test('a call that may still take effect allows outcomes after a later change', (t) => {
  const lost = change(100, 900, status('INACTIVE'), { status: null, propagation: null });
  const events = [fault(100, 1000), lost, change(910, 920, status('ACTIVE')), asked(1100, 'merchantInactive')];
  t.same(rules(...events), []);
  t.same(rules(...events, { kind: 'ended', party: 'registry-1', at: 905 }), ['good-key-refused']);
  t.end();
});
