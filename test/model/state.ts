// One state of the model is an array of bytes. A view names the bytes of one party, so that steps read as sentences.

/** The bytes of one party, by name. */
type Fields<Name extends string> = Record<Name, number>;

const worldFields = [
  'master', // which server of the pair is the master
  'linked', // whether the other server of the pair replicates it
  'used', // the kinds of fault that have happened, one bit each
  'saidK', // "K is revoked" was reported as in force; 2: and then Redis restarted on a snapshot of the former release
  'saidQ', // "Q exists" was reported as in force
  'revisionK',
  'revisionQ',
  'late', // a delayed write of a crashed registry: 1 + server, plus 16 for a write of mg:meta
  'lateMark',
  'lateGeneration',
] as const;

/** The kinds of fault. Each has its counter in the state. */
export const faultKinds = [
  'crash',
  'restore',
  'flush',
  'lose',
  'restart',
  'cut',
  'failover',
  'lapse',
  'evict',
  'replace',
] as const;

/** One kind of fault. */
export type FaultKind = (typeof faultKinds)[number];

const sqlFields = [
  'revision',
  'k', // 0: no such key, 1: active, 2: revoked
  'q',
  'generation',
  'run', // the run_id of the server that was confirmed last
  'run2', // the run_id of the master of the records, in a Cluster
  'published',
  'open',
  'roster', // how many enrolments there were, at most 1
  'change', // the history of the changes: a restored database writes a new one
  'lease', // which registry may write
] as const;

const rowFields = ['sessions'] as const;

const serverFields = [
  'up',
  'run',
  // The fields from here on are in snapshots and are copied to replicas.
  'generation',
  'server', // meta.servers; 0 with a generation: mg:meta of the former release
  'server2',
  'revision',
  'k',
  'q',
  'guard', // the revision in the record of K is that of its revocation
  'roster',
  'change',
  'mark', // the mark of the registry that may write
  'slotGeneration', // the marker of the slot of K
  'slotRevision',
  'needed', // the index of changes: the newest change in the slot of K
] as const;

const acknowledgementFields = ['state', 'session', 'generation', 'revision', 'age'] as const;
const grantFields = ['state', 'session', 'generation', 'age'] as const;

const registryFields = [
  'up',
  'phase', // see registry.ts
  'knows', // whether it has compared SQL with Redis since its start
  'connection', // 1 + server
  'run',
  'run2',
  'hold', // ticks until it may report "in force"
  'published',
  'to', // the revision that is being written
  'wait', // the value of `hold` as soon as mg:meta is written
  'k', // K as read from SQL
  'generation',
  'change',
  'mark', // the mark that it has put into Redis
  'asks', // 1: it prepares a report about K
  'asksGeneration',
] as const;

/** A registry's knowledge of one gateway. */
const watchFields = [
  'silent0',
  'silent1', // of the second instance id
  'heard', // an unprocessed notice
  'over', // 1 + instance id: to be removed; 3 + instance id: row deleted, but not yet grant and acknowledgement
  'beat', // 1 + the age of the beat that the next grant echoes
  'beatGeneration',
  'mayGrant', // the lease was checked for the next grant
  'row', // the roster row as read for a response in preparation
] as const;

const gatewayFields = [
  'state', // 0 not started, 1 runs, 2 ended
  'session',
  'link',
  'side', // it stays with the old master
  'connection', // 1 + server
  'connection2', // 1 + the master of the records, in a Cluster
  'believes',
  'generation',
  'highest',
  'enrolled',
  'age', // since its records were last known to be current
  'k', // the cached record of K
  'hot', // nothing was missed since the record was read
  'notice', // pending notices: 1 of the record, 2 of everything
  'beat',
  'beatGeneration',
  'beatRevision',
  'beatNeeded',
  'beatAge',
  'beatSure',
  'whole', // the slot of K holds every change
  'lookup', // a look-up of K is under way and may be joined
  'renewed', // it has seen an mg:meta with servers
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

/** A class whose accessors read and write single bytes: one per party, so that the engine can inline them. */
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

/** Makes an empty state for so many parties of each kind. */
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

/** An element that is there. @throws RangeError where it is not */
export function pick<Element>(list: readonly Element[], index: number): Element {
  const element = list[index];
  if (element === undefined) throw new RangeError(`no element ${index}`);
  return element;
}
