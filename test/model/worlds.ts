// The worlds that are searched: which parties there are, what breaks, and which worlds show that a mechanism is needed.
import { formerProtocol, newProtocol } from './rules.js';
import type { Mechanisms, Setup } from './rules.js';
import type { SearchOptions } from './search.js';

/** One search. */
export interface Search {
  readonly name: string;
  readonly mechanisms: Mechanisms;
  readonly setup: Setup;
  readonly options: SearchOptions;
}

const base: Setup = {
  gateways: 1,
  servers: 1,
  registries: 1,
  cluster: 'no',
  createsQ: false,
  lookups: false,
  leaves: false,
  lateWrites: false,
  former: 0,
  oldSnapshot: false,
  blank: false,
  faults: {},
  shows: [],
};

const setups = {
  quiet: base,
  cut: { ...base, faults: { cut: 1 } },
  /** Look-ups under way; gateways that leave, are killed and start again. */
  drain: { ...base, lookups: true, leaves: true, faults: { cut: 1 } },
  /** A registry crashes, and a write that it had made arrives late. */
  late: { ...base, lateWrites: true, faults: { crash: 1, cut: 1 } },
  /** Redis loses mg:gateway:* and mg:grant:*. */
  keys: { ...base, faults: { lose: 1, crash: 1, cut: 1 } },
  flush: { ...base, faults: { flush: 1, cut: 1, crash: 1 } },
  /** Redis restarts: empty, on an old snapshot, or with everything. */
  restart: { ...base, faults: { restart: 1 } },
  'restart, Q': { ...base, createsQ: true, faults: { restart: 1 } },
  /** SQL comes back from a backup, and Redis is emptied or restarts. */
  restored: { ...base, faults: { crash: 1, restore: 1, flush: 1 } },
  snapshot: { ...base, faults: { crash: 1, restore: 1, restart: 1 } },
  /** SQL comes back from a backup, and then uses the same revision numbers again. */
  reused: { ...base, createsQ: true, faults: { crash: 1, restore: 1, cut: 1 } },
  /** A replica that lags behind is promoted, and the old master lives on. */
  failover: { ...base, servers: 2, faults: { failover: 1 } },
  'failover, crash': { ...base, servers: 2, faults: { failover: 1, crash: 1 } },
  'two gateways': { ...base, gateways: 2, faults: { flush: 1, cut: 1 } },
  /** Two registries: one pauses, and the other one takes its lease. Then the first one continues its work. */
  lease: { ...base, registries: 2, faults: { lapse: 1 } },
  'lease, flush': { ...base, registries: 2, faults: { lapse: 1, flush: 1, cut: 1 } },
  'lease, keys': { ...base, registries: 2, faults: { lapse: 1, lose: 1, cut: 1 } },
  'lease, restart': { ...base, registries: 2, faults: { lapse: 1, restart: 1 } },
  /** Redis loses one key, by eviction or by DEL. */
  evicted: { ...base, faults: { evict: 1, cut: 1, crash: 1 } },
  'evicted, late': { ...base, lateWrites: true, faults: { evict: 1, crash: 1 } },
  /** A Cluster of two masters. Either the master of K's record fails over, or the master of mg:meta. */
  'cluster, records': { ...base, servers: 2, cluster: 'records', faults: { failover: 1 } },
  'cluster, meta': { ...base, servers: 2, cluster: 'meta', faults: { failover: 1 } },
  /** One master of a Cluster is emptied, or restarts. */
  'cluster, flush': { ...base, cluster: 'records', faults: { flush: 1, cut: 1 } },
  'cluster, restart': { ...base, cluster: 'records', faults: { restart: 1 } },
  /** Redis restarts on a snapshot from before the upgrade. */
  'old form': { ...base, oldSnapshot: true, faults: { restart: 1, cut: 1 } },
  'old form, crash': { ...base, oldSnapshot: true, faults: { restart: 1, crash: 1 } },
  /** A gateway of the former release beside the new registry. */
  former: { ...base, former: 1, faults: { flush: 1, cut: 1 } },
  'former, keys': { ...base, former: 1, faults: { lose: 1, cut: 1, crash: 1 } },
  'former, restored': { ...base, former: 1, createsQ: true, faults: { crash: 1, restore: 1 } },
  /** A new database on an empty Redis; later another new database takes its place. */
  blank: { ...base, blank: true, createsQ: true, faults: { crash: 1, replace: 1 } },
} satisfies Record<string, Setup>;

/** The name of a world. */
export type WorldName = keyof typeof setups;

/** The names of all worlds, in the order in which they are searched. */
export const worldNames = Object.keys(setups) as WorldName[];

/**
 * Worlds whose search ends at a limit, or does not check I3, the way back to health. Some states have no way back by
 * themselves: after the loss of a record, an administrator may have to help.
 */
const bounds: Readonly<Partial<Record<WorldName, SearchOptions>>> = {
  reused: { heals: false, limit: 3e6 },
  'failover, crash': { heals: false, limit: 2e6 },
  'two gateways': { heals: false, limit: 2e6 },
  lease: { heals: false, limit: 4e6 },
  'lease, flush': { heals: false, limit: 2e6 },
  'lease, keys': { heals: false, limit: 2e6 },
  'lease, restart': { heals: false, limit: 2e6 },
  'cluster, meta': { heals: false, limit: 4e6 },
  snapshot: { heals: false },
  failover: { heals: false, limit: 8e6 },
  blank: { heals: false, limit: 8e6 },
  evicted: { heals: false, limit: 8e6 },
  'evicted, late': { heals: false },
  former: { heals: false },
  'former, keys': { heals: false },
  'former, restored': { heals: false, limit: 4e6 },
};

/** The search of one world with the documented protocol. */
export function newIn(name: WorldName): Search {
  return { name, mechanisms: newProtocol, setup: setups[name], options: bounds[name] ?? {} };
}

/**
 * The faults of the former release, T1 to T5. T3 and T4 add mechanisms to that release. Otherwise the search would find
 * other faults first.
 */
export const formerFaults: readonly Search[] = [
  {
    name: 'T1 Redis loses acknowledgements',
    mechanisms: formerProtocol,
    setup: { ...base, faults: { flush: 1, cut: 1 }, shows: ['flush', 'cut'] },
    options: {},
  },
  {
    name: 'T2 SQL restored, Redis emptied',
    mechanisms: formerProtocol,
    setup: setups.restored,
    options: { promises: false },
  },
  {
    name: 'T3 split brain',
    mechanisms: { ...formerProtocol, newGeneration: true, confirm: true },
    setup: { ...setups.failover, shows: ['failover'] },
    options: { heals: false },
  },
  {
    name: 'T4 acknowledgement without generation',
    mechanisms: { ...formerProtocol, budgetEnds: true },
    setup: { ...setups.reused, shows: ['restore'] },
    options: { heals: false },
  },
  {
    name: 'T5 old snapshot, gateway later',
    mechanisms: formerProtocol,
    setup: { ...setups.restart, shows: ['restart'] },
    options: {},
  },
];

/** The removed mechanisms, and a world in which a promise breaks without them. */
export const mutations: readonly (readonly [Partial<Mechanisms>, WorldName])[] = [
  [{ roster: false, rowFirst: false, countEnrolments: false }, 'flush'],
  [{ durable: false }, 'keys'],
  [{ enrol: false }, 'flush'],
  [{ rowFirst: false }, 'keys'],
  [{ freshGrant: false }, 'restart'],
  [{ budgetEnds: false }, 'quiet'],
  [{ noticeProvesLife: false }, 'keys'],
  [{ recount: false }, 'keys'],
  [{ confirm: false }, 'restart'],
  [{ neverBack: false }, 'restart'],
  [{ newGeneration: false }, 'restored'],
  [{ grantGeneration: false }, 'restored'],
  [{ countEnrolments: false }, 'restored'],
  [{ unproven: false }, 'restored'],
  [{ openInSql: false }, 'restored'],
  [{ holdFromMeta: false }, 'restored'],
  [{ onlyBlankOpens: false }, 'restored'],
  [{ changeId: false }, 'reused'],
  [{ hold: false }, 'failover'],
  [{ witness: 'none' }, 'failover'],
  [{ witness: 'wait1' }, 'failover'],
  [{ closeLookups: false }, 'drain'],
  [{ leaveLast: false }, 'drain'],
  [{ recordGuard: false, mark: false }, 'late'],
  [{ mark: false }, 'evicted, late'],
  [{ neverOldForm: false }, 'old form'],
  [{ oldFormUnproven: false }, 'old form'],
  [{ keepFormerAcknowledgement: false }, 'former'],
  [{ slotMarkers: false }, 'cluster, records'],
  [{ compareMarkers: false }, 'cluster, flush'],
];

const starts = ['gateway 0 starts', 'gateway 0 connects'];
const beats = ['gateway 0 begins a beat', 'gateway 0 ends the beat'];
const enrols = ['registry 0 looks at the gateways', 'registry 0 counts the enrolment in mg:meta'];
const isGranted = ['reads the beat of gateway 0', 'checks its lease to grant gateway 0', 'grants gateway 0'] as const;
const passesLease = [
  'FAULT registry 0 pauses, and the other one takes the lease',
  'registry 1 checks its lease',
  'registry 1 compares',
];
const revokes = [
  'FAULT loss of mg:gateway:* and mg:grant:*',
  'FAULT gateway 0 is cut off',
  'admin: revoke K',
  'registry 1 reads the changes',
  'registry 1 writes the changed records',
  'registry 1 publishes the revision',
  'registry 1 notes in SQL what is published',
  'registry 1 reads the roster to answer',
  'registry 1: K is IN FORCE',
];

/** Counterexamples that lie too deep for a search: the removed mechanisms, the world, and the steps. */
export const deepMutations: readonly (readonly [Partial<Mechanisms>, WorldName, readonly string[]])[] = [
  [
    { checkLease: false },
    'lease, keys',
    [
      ...starts,
      ...beats,
      ...enrols,
      'tick',
      'tick',
      'registry 0 looks at the gateways', // finds the gateway silent
      ...passesLease,
      ...beats,
      ...isGranted.map((step) => `registry 1 ${step}`),
      ...beats,
      'gateway 0 reads K',
      'registry 0 deletes the row of gateway 0',
      ...revokes,
    ],
  ],
  [
    { leaseAfterBeats: false },
    'lease, keys',
    [
      ...starts,
      ...beats,
      ...enrols,
      'registry 0 checks its lease to grant gateway 0',
      ...passesLease,
      'tick',
      'tick',
      'registry 1 looks at the gateways',
      'registry 1 deletes the row of gateway 0',
      'registry 1 deletes the grant and the acknowledgement of gateway 0',
      ...beats,
      'registry 0 reads the beat of gateway 0',
      'registry 0 grants gateway 0',
      ...beats,
      'gateway 0 reads K',
      ...revokes,
    ],
  ],
];

/** Mechanisms whose removal alone breaks nothing in these worlds: second locks. */
export const secondLocks: readonly (readonly [Partial<Mechanisms>, WorldName])[] = [
  [{ ackGeneration: false }, 'keys'],
  [{ ackGeneration: false }, 'restored'],
  [{ atomicList: false }, 'keys'],
  [{ checkAtEnd: false }, 'keys'],
  [{ emptyUnenrolled: false }, 'keys'],
  [{ memory: false }, 'restart'],
  [{ formerPending: false }, 'former'],
  [{ formerPending: false }, 'former, restored'],
  [{ reportNamesServer: false }, 'lease, restart'],
];

/** The search of one world without some mechanisms of the documented protocol. */
export function without([changed, world]: readonly [Partial<Mechanisms>, WorldName, ...unknown[]]): Search {
  const names = Object.entries(changed).map(([name, value]) => (value === false ? name : `${name}=${String(value)}`));
  return {
    name: `without ${names.join(', ')} (${world})`,
    mechanisms: { ...newProtocol, ...changed },
    setup: setups[world],
    options: { heals: changed.newGeneration === false || changed.compareMarkers === false, limit: 6e6 },
  };
}
