// One state of the model is an array of bytes. A view names the bytes of one party, so that steps read as sentences.
// The parties are the gateways, the registries, the Redis servers, and SQL: the registries' database.
//
// The terms of the protocol, which docs/records.md and docs/registry.md describe in full:
// - K and Q are the two API keys of the model. K is revoked, and Q is created. Redis has records of both, as SQL has.
// - A revision is the number of a change. The registry writes it to Redis after the changed records.
// - A generation names one unbroken history of changes. After a loss the registry writes all records under a new name.
// - mg:meta in Redis has the generation, and the run_ids of the servers that the registry has compared with SQL. The
//   former release wrote no servers.
// - A beat is a heartbeat of a gateway, which reads mg:meta and the revision. At its end the gateway writes its
//   acknowledgement to Redis. It states that the gateway caches nothing older than this revision of this generation.
// - The roster in SQL has a row for each gateway that may cache records. To enrol a gateway is to add its row.
// - A grant in Redis is the registry's permission to cache records. It echoes one beat, that is, it confirms the beat.
// - The mark in Redis names the registry that may write. In a Cluster, the marker of a slot shows which changes the
//   slot has.
// - "In force" is the report of a registry that every gateway obeys a change.

/** The bytes of one party, by name. */
type Fields<Name extends string> = Record<Name, number>;

const worldFields = [
  'master', // which server of the pair, 0 or 1, is the master; the other one is the replica
  'linked', // 1: the replica is connected to the master
  'used', // the kinds of fault that have happened, as bits; see bitOf in faults.ts
  'saidK', // 1: "K is revoked" was reported as in force; 2: later Redis restarted on a snapshot of the former release
  'saidQ', // 1: "Q exists" was reported as in force
  'revisionK', // of the last change of K
  'revisionQ', // of the creation of Q
  'late', // the delayed write of a crashed registry: 1 + server, plus 16 for a write of mg:meta; 0: none
  'lateMark', // the mark of that registry
  'lateGeneration', // the generation in that write of mg:meta
] as const;

/** The kinds of fault. Each has its counter in the state. */
export const faultKinds = [
  'crash', // a registry ends
  'restore', // SQL comes back from a backup
  'flush', // FLUSHALL
  'lose', // Redis loses all acknowledgements and grants
  'restart', // a Redis server restarts
  'cut', // a gateway loses its network
  'failover', // the replica becomes the master
  'lapse', // a registry pauses, and the other one takes its lease
  'evict', // Redis loses one key
  'replace', // SQL is replaced by a new database
] as const;

/** One kind of fault. */
export type FaultKind = (typeof faultKinds)[number];

const sqlFields = [
  'revision', // of the newest change
  'k', // 0: no such key, 1: active, 2: revoked
  'q', // 1: Q exists
  'generation',
  'run', // the run_id of the server that was last confirmed to have the state of SQL; 0: none
  'run2', // the same for the master of the records, in a Cluster
  'published', // the newest revision that is known to be in Redis
  'open', // 1: "in force" may be reported; 0: the registry has to wait before that
  'roster', // how many enrolments there were, at most 1
  'change', // names the history of the changes: a restored database begins another one
  'lease', // the number of the registry that may write
] as const;

const rowFields = ['sessions'] as const;

const serverFields = [
  'up',
  'run', // the run_id of its process
  // The fields from here on are in snapshots and are copied to replicas.
  'generation', // that of mg:meta; 0: there is no mg:meta
  'server', // the run_id of the server that mg:meta names; 0: none, as in an mg:meta of the former release
  'server2', // the same for the master of the records, in a Cluster
  'revision', // of the newest change
  'k', // the record of K; 0: none, 1: active, 2: revoked
  'q', // 1: the record of Q is there
  'guard', // 1: the record of K has the revision of the revocation
  'roster', // how many enrolments the registry has counted here, at most 1
  'change', // names the history of the newest change, like the field of SQL
  'mark', // the mark of the registry that may write
  'slotGeneration', // the marker of the slot of K: its generation
  'slotRevision', // the marker of the slot of K: its revision
  'needed', // the index of changes: the newest change in the slot of K
] as const;

/** `state`: 0: none, 1: written at the end of a beat, 2: written when the gateway left. */
const acknowledgementFields = ['state', 'session', 'generation', 'revision', 'age'] as const;
/** `state`: 0: none, 1: written. `age`: that of the echoed beat. */
const grantFields = ['state', 'session', 'generation', 'age'] as const;

const registryFields = [
  'up',
  'phase', // see registry.ts
  'knows', // whether it has compared SQL with Redis since its start
  'connection', // 1 + server; 0: none
  'run', // the run_id of that server
  'run2', // the same for the master of the records, in a Cluster
  'hold', // ticks until it may report "in force"
  'published', // the newest revision that it knows to be in Redis
  'to', // the revision that is being written
  'wait', // the value that `hold` gets as soon as mg:meta is written
  'k', // K as read from SQL
  'generation',
  'change', // the history as read from SQL
  'mark', // the mark that it has put into Redis
  'asks', // 1: it prepares a report about K
  'asksGeneration', // the generation of SQL when it began to prepare the report
] as const;

/** A registry's knowledge of one gateway. */
const watchFields = [
  'silent0', // ticks without a sign of life of the first instance id
  'silent1', // the same for the second instance id
  'noticed', // 1: a notice about the acknowledgement has not been processed yet
  'over', // 1 + instance id: to be removed; 3 + instance id: row deleted, grant and acknowledgement are deleted next
  'beat', // 0: no beat was read for the next grant; otherwise 1 + the age of the beat that this grant will echo
  'beatGeneration', // the generation in that beat's acknowledgement
  'mayGrant', // 1: the lease was checked for the next grant
  'row', // the row of the roster, as read for the report in preparation
] as const;

const gatewayFields = [
  'state', // 0 not started, 1 runs, 2 ended
  'session', // the number of its instance id: 0 or 1
  'link', // 1: its network works
  'side', // 1: after a failover it stays with the old master, server 0
  'connection', // 1 + server; 0: none
  'connection2', // 1 + the master of the records, in a Cluster
  'believes', // 1: it trusts its server, and decides by what it reads there
  'generation', // of its last complete beat; 0: none yet
  'highest', // the highest revision that it has read in this generation
  'enrolled', // 1: its last beat has read a grant; 2: it caches without a grant, as the former release does
  'age', // ticks since its records were last known to be current
  'k', // the cached record of K; 0: none
  'hot', // 1: it has missed no notice about its cache
  'notice', // pending notices; 1: the record has changed, 2: everything has changed, 3: both
  'beat', // 0: no beat is under way; 1: the beat has read an mg:meta of the present release; 2: of the former release
  'beatGeneration', // the generation that the beat has read
  'beatRevision', // the revision that the beat has read
  'beatNeeded', // the newest change in the slot of K, as the beat has read it
  'beatAge', // ticks since the beat began
  'beatSure', // 1: the beat itself shows that the server is still the master
  'whole', // 1: at the last beat, the slot of K had every change
  'lookup', // 1: a look-up of K is under way, and other requests may join it
  'renewed', // 1: it has seen an mg:meta with servers
] as const;

/** The fields of the whole world. */
type World = Fields<(typeof worldFields)[number]> & { readonly faults: Fields<FaultKind> };
/** The rows of one gateway in the roster: one bit for each of its instance ids. */
type Row = Fields<(typeof rowFields)[number]>;
/** The registry's database. */
type Sql = Fields<(typeof sqlFields)[number]> & { readonly rows: readonly Row[] };
/** `mg:gateway:<id>`. */
export type Acknowledgement = Fields<(typeof acknowledgementFields)[number]>;
/** `mg:grant:<id>`. */
export type Grant = Fields<(typeof grantFields)[number]>;
/** A registry's knowledge of one gateway. */
export type Watch = Fields<(typeof watchFields)[number]>;
/** One process of the gateway. */
export type Gateway = Fields<(typeof gatewayFields)[number]>;
/** One Redis server. */
export type Server = Fields<(typeof serverFields)[number]> & {
  readonly acknowledgements: readonly Acknowledgement[];
  readonly grants: readonly Grant[];
  /** Where its data begins among the bytes of the state. */
  readonly dataAt: number;
};
/** One process of the registry. */
export type Registry = Fields<(typeof registryFields)[number]> & { readonly watches: readonly Watch[] };

/** A state and the views on it. */
export interface State {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly names: readonly string[];
  readonly world: World;
  readonly sql: Sql;
  readonly servers: readonly Server[];
  readonly registries: readonly Registry[];
  readonly gateways: readonly Gateway[];
  readonly dataLength: number;
}

class View {
  readonly bytes: Uint8Array;
  readonly at: number;

  constructor(bytes: Uint8Array, at: number) {
    this.bytes = bytes;
    this.at = at;
  }
}

/**
 * Makes a class whose accessors read and write single bytes. Each kind of party has its own class, so that the engine
 * can inline the accessors.
 */
function viewOf<Name extends string>(names: readonly Name[]): new (bytes: Uint8Array, at: number) => Fields<Name> {
  class PartyView extends View {}
  names.forEach((name, index) => {
    Object.defineProperty(PartyView.prototype, name, {
      get(this: View) {
        return this.bytes[this.at + index];
      },
      set(this: View, value: number) {
        this.bytes[this.at + index] = value;
      },
    });
  });
  return PartyView as unknown as new (bytes: Uint8Array, at: number) => Fields<Name>;
}

const WorldView = viewOf(worldFields);
const FaultsView = viewOf(faultKinds);
const SqlView = viewOf(sqlFields);
const RowView = viewOf(rowFields);
const ServerView = viewOf(serverFields);
const AcknowledgementView = viewOf(acknowledgementFields);
const GrantView = viewOf(grantFields);
const RegistryView = viewOf(registryFields);
const WatchView = viewOf(watchFields);
const GatewayView = viewOf(gatewayFields);

/** Makes a state of zeros for these numbers of parties. */
export function createState(counts: { gateways: number; servers: number; registries: number }): State {
  const names: string[] = [];
  const make: ((bytes: Uint8Array<ArrayBuffer>) => void)[] = [];
  const reserve = (prefix: string, fields: readonly string[]): number => {
    names.push(...fields.map((field) => `${prefix}${field}`));
    return names.length - fields.length;
  };
  const each = (count: number): number[] => Array.from({ length: count }, (_, index) => index);
  let world: World | undefined;
  let sql: Sql | undefined;
  const servers: Server[] = [];
  const registries: Registry[] = [];
  const gateways: Gateway[] = [];

  const worldAt = reserve('', worldFields);
  const faultsAt = reserve('fault.', faultKinds);
  const sqlAt = reserve('sql.', sqlFields);
  const rowsAt = each(counts.gateways).map((g) => reserve(`sql.row${g}.`, rowFields));
  make.push((bytes) => {
    world = Object.assign(new WorldView(bytes, worldAt), { faults: new FaultsView(bytes, faultsAt) });
    sql = Object.assign(new SqlView(bytes, sqlAt), { rows: rowsAt.map((offset) => new RowView(bytes, offset)) });
  });
  let dataLength = 0;
  for (const index of each(counts.servers)) {
    const at = reserve(`server${index}.`, serverFields);
    const acknowledgementsAt = each(counts.gateways).map((g) =>
      reserve(`server${index}.a${g}.`, acknowledgementFields),
    );
    const grantsAt = each(counts.gateways).map((g) => reserve(`server${index}.grant${g}.`, grantFields));
    const dataAt = at + serverFields.indexOf('generation');
    dataLength = names.length - dataAt;
    make.push((bytes) => {
      const server = Object.assign(new ServerView(bytes, at), {
        acknowledgements: acknowledgementsAt.map((offset) => new AcknowledgementView(bytes, offset)),
        grants: grantsAt.map((offset) => new GrantView(bytes, offset)),
        dataAt,
      });
      servers.push(server);
    });
  }
  for (const index of each(counts.registries)) {
    const at = reserve(`registry${index}.`, registryFields);
    const watchesAt = each(counts.gateways).map((g) => reserve(`registry${index}.watch${g}.`, watchFields));
    make.push((bytes) => {
      const watches = watchesAt.map((offset) => new WatchView(bytes, offset));
      registries.push(Object.assign(new RegistryView(bytes, at), { watches }));
    });
  }
  for (const index of each(counts.gateways)) {
    const at = reserve(`gateway${index}.`, gatewayFields);
    make.push((bytes) => gateways.push(new GatewayView(bytes, at)));
  }
  while (names.length % 4 !== 0) names.push(`padding${names.length}`); // the search compares words of four bytes
  const bytes = new Uint8Array(names.length);
  for (const makeView of make) makeView(bytes);
  if (world === undefined || sql === undefined) throw new Error('the views of the world are missing');
  return { bytes, names, world, sql, servers, registries, gateways, dataLength };
}

/** Returns the element at an index. @throws RangeError if there is none */
export function pick<Element>(list: readonly Element[], index: number): Element {
  const element = list[index];
  if (element === undefined) throw new RangeError(`no element ${index}`);
  return element;
}
