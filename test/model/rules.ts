// The mechanisms of the protocol, what a world consists of, and the words that the steps of all parties share.
import { pick } from './state.js';
import type { Acknowledgement, FaultKind, Gateway, Grant, Registry, Server, State } from './state.js';

/** A gateway serves what it holds while it was sure at most so many ticks ago. */
export const STALE = 1;
/** So many ticks the registry waits for a gateway that is silent. */
export const LIFE = STALE + 1;
/** An age that is too great for every rule; nothing grows older. */
export const OLD = LIFE + 1;

/** By what a gateway finds that its server is still the master, where another one can take over. */
export type Witness = 'none' | 'sentinel' | 'echo' | 'sentinel+echo' | 'wait1' | 'waitAll';

/** The protocol as it is documented. Each mechanism can be removed. */
export const newProtocol = {
  /** Gateways have rows in SQL; without: only the acknowledgements that stand in Redis count. */
  roster: true,
  /** The rows survive the end of the registry's process. */
  durable: true,
  /** Before it has read its grant, a gateway holds nothing and has no budget. */
  enrol: true,
  /** The row is committed before the grant is written. */
  rowFirst: true,
  /** A grant is valid only in its generation. */
  grantGeneration: true,
  /** An acknowledgement counts only in its generation. */
  ackGeneration: true,
  /** Each discontinuity begins a generation. */
  newGeneration: true,
  /** Silence is measured anew after each start and each compare. */
  recount: true,
  /** A notice about an acknowledgement is a sign of life, whatever is read afterwards. */
  heard: true,
  /** Where SQL cannot be proven to be current, the registry waits LIFE before the first "in force". */
  unproven: true,
  /** … also after a crash, or after another loss, during that wait. */
  openInSql: true,
  /** Generation and acknowledgements are read in one transaction. */
  atomicList: true,
  /** A server is believed where mg:meta names its run_id. */
  confirm: true,
  /** … or where an enrolled gateway finds its own generation and nothing missing. */
  memory: true,
  /** A lower revision of the same generation is not believed. */
  neverBack: true,
  /** A gateway whose budget has run out is not enrolled and holds nothing. */
  budgetEnds: true,
  /** … also where the budget ran out during a beat. */
  checkAtEnd: true,
  /** A gateway becomes enrolled only by a grant that names a beat begun at most STALE ago. */
  freshGrant: true,
  /** A gateway that is not enrolled holds nothing. */
  emptyUnenrolled: true,
  /** An enrolment is a change of its own, so that a restored roster is found out. */
  countEnrolments: true,
  /** mg:change names the change of a number: a restored database counts up to the same numbers again. */
  changeId: true,
  /** The waits begin when the new mg:meta is written. */
  holdFromMeta: true,
  /** The registry waits a tick after another server has taken over. */
  hold: true,
  /** What shows a gateway that its server is still the master. */
  witness: 'sentinel+echo' as Witness,
  /** A look-up is not joined after a notice, or by a gateway that is not enrolled. */
  closeLookups: true,
  /** Held records are kept, as stale, over a new connection. */
  keepAsStale: true,
  /** A gateway writes that it leaves after it has decided its last request. */
  leaveLast: true,
  /** A record of a lower revision replaces nothing. */
  recordGuard: true,
  /** A write of a registry whose mark was replaced does nothing. */
  mark: true,
  /** Acknowledgements outlive the removal, which deletes row, then grant and acknowledgement. */
  longAcknowledgements: true,
  /** The registry leaves the acknowledgement of a gateway of the former release to its expiry. */
  keepFormerAcknowledgement: true,
  /** A gateway that has seen an mg:meta with servers believes none without. */
  neverOldForm: true,
  /** The registry cannot account for an mg:meta of the former release: it waits LIFE, whatever it has seen itself. */
  oldFormUnproven: true,
  /** A gateway of the former release counts until it is silent; without: its acknowledgement of a revision counts. */
  formerPending: true,
  /** A database without changes on an empty Redis opens at once; all others wait. */
  onlyBlankOpens: true,
  /** Each transaction of a registry checks its lease. */
  checkLease: true,
  /** A registry reads the beats, then checks its lease, then writes the grants. */
  leaseAfterBeats: true,
  /** An answer needs an mg:meta that names the server itself. */
  answerNamesServer: true,
  /** A gateway decides by a record in a Cluster only where the marker of its slot has every change. */
  slotMarkers: true,
  /** In a Cluster, continuity needs the markers of all slots too. */
  compareMarkers: true,
};

/** Which mechanisms are in use. */
export type Mechanisms = typeof newProtocol;

/** The protocol of the former release. */
export const formerProtocol: Mechanisms = {
  ...(Object.fromEntries(Object.keys(newProtocol).map((name) => [name, false])) as unknown as Mechanisms),
  neverBack: true,
  memory: true,
  closeLookups: true,
  leaveLast: true,
  recordGuard: true,
  mark: true,
  slotMarkers: true,
  onlyBlankOpens: true,
  checkLease: true,
  witness: 'none',
};

/** A gateway of the former release beside the new registry, apart from a pause of more than its stale time: see T4. */
const formerGateway: Mechanisms = { ...formerProtocol, budgetEnds: true, checkAtEnd: true };

/** A world: the parties, the faults that happen and how often, and what is looked for. */
export interface Setup {
  readonly gateways: number;
  /** 2: a master and its replica. In a Cluster there is one more server, the other master. */
  readonly servers: 1 | 2;
  readonly registries: 1 | 2;
  /** A Cluster of two masters: which of them has the replica, that of the record of K or that of mg:meta. */
  readonly cluster: 'no' | 'records' | 'meta';
  /** Whether a second key is created, whose creation must be in force too (I2). */
  readonly createsQ: boolean;
  /** Whether look-ups can be joined. */
  readonly lookups: boolean;
  /** Whether gateways leave, are killed, and start again under another instance id. */
  readonly leaves: boolean;
  /** Whether a write of a crashed registry can arrive late. */
  readonly lateWrites: boolean;
  /** How often each kind of fault happens at most. */
  readonly faults: Readonly<Partial<Record<FaultKind, number>>>;
  /** So many gateways, the first ones, are of the former release. */
  readonly former: 0 | 1;
  /** Whether the old snapshot has an mg:meta of the former release. */
  readonly oldSnapshot: boolean;
  /** Whether the world begins with a new database and an empty Redis. */
  readonly blank: boolean;
  /** Only states after all these faults count as broken. */
  readonly shows: readonly FaultKind[];
}

/** Makes one step out of the present state, where its condition holds. */
export type Step = (label: string, change: (next: State) => void, kind?: StepKind) => void;

/** Faults and the commands of administrators are no way by which a state can heal. */
export type StepKind = 'step' | 'fault' | 'command';

/** What the steps of all parties are made with. */
export class Rules {
  readonly mechanisms: Mechanisms;
  readonly setup: Setup;
  /** A gateway that is started again has another instance id. */
  readonly sessions: 1 | 2;
  /** Whether another server can take over. */
  readonly canFailOver: boolean;
  readonly isCluster: boolean;
  /** Whether the model keeps the writer's mark: only where two writers can meet. */
  readonly keepsMark: boolean;

  constructor(mechanisms: Mechanisms, setup: Setup) {
    this.mechanisms = mechanisms;
    this.setup = setup;
    this.sessions = setup.leaves ? 2 : 1;
    this.canFailOver = setup.servers > 1;
    this.isCluster = setup.cluster !== 'no';
    this.keepsMark = setup.lateWrites || setup.registries > 1;
  }

  /** The mechanisms of one gateway. */
  of(gateway: number): Mechanisms {
    return gateway < this.setup.former ? formerGateway : this.mechanisms;
  }

  /** The number of the server that is the master of mg:meta. */
  metaMaster(state: State): number {
    return this.setup.cluster === 'records' ? 2 : state.world.master;
  }

  /** The number of the server that is the master of the record of K. */
  recordsMaster(state: State): number {
    return this.setup.cluster === 'meta' ? 2 : state.world.master;
  }

  isMaster(state: State, server: number): boolean {
    return server === this.metaMaster(state) || server === this.recordsMaster(state);
  }

  /** The server that a gateway reads mg:meta from. */
  metaServerOf(state: State, gateway: Gateway): Server {
    return pick(state.servers, gateway.connection - 1);
  }

  /** The server that a gateway reads the record of K from. */
  recordsServerOf(state: State, gateway: Gateway): Server {
    return pick(state.servers, (this.isCluster ? gateway.connection2 : gateway.connection) - 1);
  }

  /** Whether a gateway runs and has its connections. */
  reaches(state: State, gateway: Gateway): boolean {
    if (gateway.state !== 1 || gateway.link !== 1 || gateway.connection === 0) return false;
    if (this.metaServerOf(state, gateway).up !== 1) return false;
    return !this.isCluster || (gateway.connection2 !== 0 && this.recordsServerOf(state, gateway).up === 1);
  }

  /** Whether a gateway may answer from memory. */
  holds(gateway: Gateway, mechanisms: Mechanisms): boolean {
    if (gateway.generation === 0 || gateway.age > STALE) return false;
    return !mechanisms.enrol || gateway.enrolled > 0;
  }

  /** Whether a gateway that asks Redis may decide by the reply. */
  readsThrough(state: State, gateway: Gateway, mechanisms: Mechanisms): boolean {
    if (!this.reaches(state, gateway) || gateway.believes !== 1) return false;
    if (this.isCluster && mechanisms.slotMarkers && gateway.whole !== 1) return false;
    if (!this.canFailOver || mechanisms.witness === 'none') return true;
    return gateway.enrolled > 0 || !mechanisms.enrol ? gateway.age <= STALE : gateway.age === 0;
  }

  /** Whether a registry talks to the present masters over the connections that it made. */
  talks(state: State, registry: Registry): boolean {
    if (registry.up !== 1 || registry.connection === 0 || registry.connection - 1 !== this.metaMaster(state))
      return false;
    const server = pick(state.servers, registry.connection - 1);
    if (server.up !== 1 || server.run !== registry.run) return false;
    if (!this.isCluster) return true;
    const records = pick(state.servers, this.recordsMaster(state));
    return records.up === 1 && records.run === registry.run2;
  }

  /** Tells all gateways that are connected to a server of a change of its records. @param what 1: of the record; 2: of everything */
  notify(state: State, server: number, what: 1 | 2 = 1): void {
    for (const gateway of state.gateways) {
      const connection = this.isCluster ? gateway.connection2 : gateway.connection;
      if (gateway.state === 1 && connection - 1 === server) gateway.notice |= what;
    }
  }

  /** Tells the registries that listen to a server of an acknowledgement. */
  announce(state: State, server: number, gateway: number): void {
    for (const registry of state.registries) {
      const isBound = registry.connection - 1 === server && pick(state.servers, server).run === registry.run;
      if (registry.up === 1 && isBound) pick(registry.watches, gateway).heard = 1;
    }
  }

  /** Ends all connections of gateways to a server. */
  disconnect(state: State, server: number): void {
    for (const gateway of state.gateways) {
      if (gateway.connection - 1 === server || gateway.connection2 - 1 === server) loseConnections(gateway);
    }
  }

  /** Replaces the data of a server by those bytes, or by nothing. */
  replaceData(state: State, server: Server, bytes: Uint8Array | null, from: number): void {
    const { dataLength } = state;
    if (bytes === null) state.bytes.fill(0, server.dataAt, server.dataAt + dataLength);
    else state.bytes.set(bytes.subarray(from, from + dataLength), server.dataAt);
  }

  /** A name that nothing in the state refers to. A name is used again then, so that there are finitely many states. */
  freshGeneration(state: State): number {
    const used = new Set([0, 1, state.sql.generation, state.world.lateGeneration]);
    for (const server of state.servers) {
      used.add(server.generation).add(server.slotGeneration);
      for (const { generation } of server.acknowledgements) used.add(generation);
      for (const { generation } of server.grants) used.add(generation);
    }
    for (const registry of state.registries) {
      used.add(registry.generation).add(registry.asksGeneration);
      for (const watch of registry.watches) used.add(watch.beatGeneration);
    }
    for (const gateway of state.gateways) used.add(gateway.generation).add(gateway.beatGeneration);
    return smallestBeside(used);
  }

  /** The run_id of a process of Redis that has just started. */
  freshRun(state: State): number {
    const used = new Set([0, 1, state.sql.run, state.sql.run2]);
    for (const registry of state.registries) used.add(registry.run).add(registry.run2);
    for (const server of state.servers) used.add(server.run).add(server.server).add(server.server2);
    return smallestBeside(used);
  }

  /** An instance id of a gateway that nothing knows; -1 where there is none. */
  freshSession(state: State, gateway: number): number {
    for (let session = 0; session < this.sessions; session++) {
      const isInRoster = (pick(state.sql.rows, gateway).sessions & (1 << session)) !== 0;
      const isInRedis = state.servers.some(({ acknowledgements, grants }) => {
        const acknowledgement = pick(acknowledgements, gateway);
        const grant = pick(grants, gateway);
        return (
          (acknowledgement.state > 0 && acknowledgement.session === session) ||
          (grant.state > 0 && grant.session === session)
        );
      });
      if (!isInRoster && !isInRedis) return session;
    }
    return -1;
  }
}

function smallestBeside(used: ReadonlySet<number>): number {
  let name = 1;
  while (used.has(name)) name++;
  return name;
}

/** A gateway loses its connections; what it holds stays. */
export function loseConnections(gateway: Gateway): void {
  gateway.connection = 0;
  gateway.connection2 = 0;
  gateway.believes = 0;
  gateway.hot = 0;
  gateway.beat = 0;
  gateway.lookup = 0;
  gateway.notice = 0;
  gateway.whole = 0;
}

/** Sets all silences to 0. */
export function restartSilence(registry: Registry): void {
  for (const watch of registry.watches) {
    watch.silent0 = 0;
    watch.silent1 = 0;
  }
}

/** Deletes `mg:gateway:<id>`. */
export function deleteAcknowledgement(acknowledgement: Acknowledgement): void {
  acknowledgement.state = 0;
  acknowledgement.session = 0;
  acknowledgement.generation = 0;
  acknowledgement.revision = 0;
  acknowledgement.age = 0;
}

/** Deletes `mg:grant:<id>`. */
export function deleteGrant(grant: Grant): void {
  grant.state = 0;
  grant.session = 0;
  grant.generation = 0;
  grant.age = 0;
}

/** A gateway is not enrolled any more and holds nothing. */
export function forget(gateway: Gateway): void {
  gateway.enrolled = 0;
  gateway.k = 0;
  gateway.lookup = 0;
}
