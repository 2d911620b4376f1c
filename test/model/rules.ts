// The mechanisms of the protocol, the setup of a world, and the operations that the steps of all parties share.
// state.ts explains the terms of the protocol.
import { pick } from './state.js';
import type { Acknowledgement, FaultKind, Gateway, Grant, Registry, Server, State } from './state.js';

/** A gateway serves cached records for at most this many ticks after it last knew them to be current. */
export const STALE = 1;
/** The number of ticks for which the registry waits for a silent gateway. */
export const LIFE = STALE + 1;
/** The highest age that is counted. It exceeds every limit. */
export const OLD = LIFE + 1;

/**
 * How a gateway determines that its server is still the master, if a failover is possible. `sentinel`: it asks the
 * sentinels. `echo`: a recent grant echoes one of its beats. `wait1`, `waitAll`: one replica, or every replica, has to
 * confirm a write. `none`: it does not check.
 */
export type Witness = 'none' | 'sentinel' | 'echo' | 'sentinel+echo' | 'wait1' | 'waitAll';

/** The protocol as docs/records.md and docs/registry.md describe it. A search can leave out each mechanism. */
export const newProtocol = {
  /** Gateways have rows in SQL; without this, only the acknowledgements in Redis count. */
  roster: true,
  /** The rows survive the end of the registry's process. */
  durable: true,
  /** A gateway caches nothing before it has read its grant. The grant gives it a budget: the time to use its cache. */
  enrol: true,
  /** The row is committed before the grant is written. */
  rowFirst: true,
  /** A grant is valid only in its generation: until all records are written to Redis anew. */
  grantGeneration: true,
  /** An acknowledgement counts only in its generation. */
  ackGeneration: true,
  /** Whenever the registry cannot prove that Redis has what SQL has, it begins a new generation. */
  newGeneration: true,
  /** The registry measures the silence of gateways anew after each start and each comparison of Redis with SQL. */
  recount: true,
  /**
   * A notice about an acknowledgement proves that the gateway lives, even if the registry does not find the
   * acknowledgement.
   */
  noticeProvesLife: true,
  /** If SQL is not proven to be current, the registry waits LIFE before the first "in force". */
  unproven: true,
  /** If a crash of the registry or a loss of data interrupts the wait of `unproven`, the registry waits LIFE again. */
  openInSql: true,
  /** The registry reads the generation and the acknowledgements in one transaction. */
  atomicList: true,
  /** A gateway trusts a server if mg:meta names the server's run_id. */
  confirm: true,
  /** An enrolled gateway also trusts a server if mg:meta has the generation of the gateway's last complete beat. */
  memory: true,
  /** A gateway does not trust a lower revision of the same generation. */
  neverBack: true,
  /** A gateway whose budget is used up is no longer enrolled, and empties its cache. */
  budgetEnds: true,
  /** The gateway also checks its budget at the end of a beat. */
  checkAtEnd: true,
  /** A gateway becomes enrolled only by a grant for a beat that began at most STALE ticks ago. */
  freshGrant: true,
  /** A gateway that is not enrolled caches nothing. */
  emptyUnenrolled: true,
  /** SQL and Redis count the enrolments. So the registry detects that a restored database lacks one of them. */
  countEnrolments: true,
  /**
   * mg:change identifies the newest change. The revision does not, because a restored database uses the same revisions
   * again.
   */
  changeId: true,
  /** The waits of `unproven` and `hold` begin when the new mg:meta is written. */
  holdFromMeta: true,
  /** If a failover is possible, the registry waits at least a tick after a rebuild before the first "in force". */
  hold: true,
  /** How a gateway determines that its server is still the master. */
  witness: 'sentinel+echo' as Witness,
  /** A request joins a look-up only in an enrolled gateway, and only if the look-up began after the last notice. */
  closeLookups: true,
  /** Cached records survive a reconnect, as stale. */
  keepAsStale: true,
  /** A gateway decides its last request before it writes that it leaves. */
  leaveLast: true,
  /** A record never replaces a record of a higher revision. */
  recordGuard: true,
  /** Redis has the mark of one registry, and rejects the writes of another. */
  mark: true,
  /**
   * An acknowledgement expires only after three lifetimes. To remove a gateway, the registry first deletes its row,
   * then its grant and its acknowledgement.
   */
  longAcknowledgements: true,
  /** The registry does not delete the acknowledgement of a gateway of the former release, but lets it expire. */
  keepFormerAcknowledgement: true,
  /** Once a gateway has seen an mg:meta that lists servers, it trusts none without this list (the former release's form). */
  neverOldForm: true,
  /** After it finds an mg:meta of the former release, the registry waits LIFE, even if it has not restarted. */
  oldFormUnproven: true,
  /**
   * The acknowledgement of a gateway of the former release does not count. Instead the registry waits until that
   * gateway is silent.
   */
  formerPending: true,
  /** An empty Redis spares the registry the wait of `unproven` only if the database has no changes either. */
  onlyBlankOpens: true,
  /** Each transaction of a registry checks its lease. */
  checkLease: true,
  /** A registry reads the beats, then checks its lease, then writes the grants. */
  leaseAfterBeats: true,
  /** "In force" needs an mg:meta that names the server from which it was read. */
  reportNamesServer: true,
  /** In a Cluster, a gateway decides by a record only if the marker of its slot shows that no change is missing. */
  slotMarkers: true,
  /** In a Cluster, the registry rebuilds Redis unless the markers of all slots show that no change is missing. */
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

/**
 * The mechanisms of a gateway of the former release beside the new registry. That gateway also had a fault in pauses
 * longer than STALE, which the model leaves out.
 */
const formerGateway: Mechanisms = { ...formerProtocol, budgetEnds: true, checkAtEnd: true };

/** A world: the parties, the faults and their numbers, and the states to check. */
export interface Setup {
  readonly gateways: number;
  /** 2: a master and its replica. In a Cluster there is one more server, the other master. */
  readonly servers: 1 | 2;
  readonly registries: 1 | 2;
  /**
   * `no`: no Cluster. Otherwise there are two masters, and the value names the one that may have a replica. `records`:
   * the master of K's record. `meta`: the master of mg:meta.
   */
  readonly cluster: 'no' | 'records' | 'meta';
  /** Whether Q is created. After its creation was reported as in force, no gateway may reject Q as unknown (I2). */
  readonly createsQ: boolean;
  /** Whether a request can join the running look-up of another request. */
  readonly lookups: boolean;
  /** Whether gateways leave, are killed, and start again under another instance id. */
  readonly leaves: boolean;
  /** Whether a write of a crashed registry can arrive late. */
  readonly lateWrites: boolean;
  /** Maximum number of faults of each kind. */
  readonly faults: Readonly<Partial<Record<FaultKind, number>>>;
  /** Number of gateways that run the former release. They have the lowest indexes. */
  readonly former: 0 | 1;
  /** Whether the old snapshot has an mg:meta of the former release. */
  readonly oldSnapshot: boolean;
  /** Whether the world begins with a new database and an empty Redis. */
  readonly blank: boolean;
  /** A state counts as broken only after all of these faults have happened. */
  readonly shows: readonly FaultKind[];
}

/** Makes one step: applies `change` to a copy of the current state. */
export type Step = (label: string, change: (next: State) => void, kind?: StepKind) => void;

/** The kind of a step. Recovery (I3) must not depend on faults or on commands of administrators. */
export type StepKind = 'step' | 'fault' | 'command';

/** The operations that the steps of all parties share. */
export class Rules {
  readonly mechanisms: Mechanisms;
  readonly setup: Setup;
  /** How many instance ids a gateway can have: each start gives it another one. */
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

  /** Whether a gateway may decide by its cached records. */
  holds(gateway: Gateway, mechanisms: Mechanisms): boolean {
    if (gateway.generation === 0 || gateway.age > STALE) return false;
    return !mechanisms.enrol || gateway.enrolled > 0;
  }

  /** Whether a gateway that queries Redis may decide by the reply. */
  readsThrough(state: State, gateway: Gateway, mechanisms: Mechanisms): boolean {
    if (!this.reaches(state, gateway) || gateway.believes !== 1) return false;
    if (this.isCluster && mechanisms.slotMarkers && gateway.whole !== 1) return false;
    if (!this.canFailOver || mechanisms.witness === 'none') return true;
    return gateway.enrolled > 0 || !mechanisms.enrol ? gateway.age <= STALE : gateway.age === 0;
  }

  /** Whether a registry's connections lead to the current masters. */
  talks(state: State, registry: Registry): boolean {
    if (registry.up !== 1 || registry.connection === 0 || registry.connection - 1 !== this.metaMaster(state))
      return false;
    const server = pick(state.servers, registry.connection - 1);
    if (server.up !== 1 || server.run !== registry.run) return false;
    if (!this.isCluster) return true;
    const records = pick(state.servers, this.recordsMaster(state));
    return records.up === 1 && records.run === registry.run2;
  }

  /**
   * Sends a notice about changed records to all gateways that are connected to a server.
   * @param what 1: the record has changed; 2: everything has
   */
  notify(state: State, server: number, what: 1 | 2 = 1): void {
    for (const gateway of state.gateways) {
      const connection = this.isCluster ? gateway.connection2 : gateway.connection;
      if (gateway.state === 1 && connection - 1 === server) gateway.notice |= what;
    }
  }

  /** Notifies the registries that are subscribed to a server: the acknowledgement of a gateway has changed. */
  announce(state: State, server: number, gateway: number): void {
    for (const registry of state.registries) {
      const isBound = registry.connection - 1 === server && pick(state.servers, server).run === registry.run;
      if (registry.up === 1 && isBound) pick(registry.watches, gateway).noticed = 1;
    }
  }

  /** Closes all connections of gateways to a server. */
  disconnect(state: State, server: number): void {
    for (const gateway of state.gateways) {
      if (gateway.connection - 1 === server || gateway.connection2 - 1 === server) loseConnections(gateway);
    }
  }

  /** Replaces the data of a server by the bytes that begin at `from`; null: empties the server. */
  replaceData(state: State, server: Server, bytes: Uint8Array | null, from: number): void {
    const { dataLength } = state;
    if (bytes === null) state.bytes.fill(0, server.dataAt, server.dataAt + dataLength);
    else state.bytes.set(bytes.subarray(from, from + dataLength), server.dataAt);
  }

  /** An unused name for a generation. Names are used again, so that the number of states is finite. */
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

  /** An unused run_id, for a Redis process that has just started. */
  freshRun(state: State): number {
    const used = new Set([0, 1, state.sql.run, state.sql.run2]);
    for (const registry of state.registries) used.add(registry.run).add(registry.run2);
    for (const server of state.servers) used.add(server.run).add(server.server).add(server.server2);
    return smallestBeside(used);
  }

  /** An instance id that neither SQL nor Redis has for the given gateway; -1 if there is none. */
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

/** A gateway loses its connections and keeps its cache. */
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

/** Sets the ticks of silence of every gateway to 0. */
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

/** A gateway is no longer enrolled and empties its cache. */
export function forget(gateway: Gateway): void {
  gateway.enrolled = 0;
  gateway.k = 0;
  gateway.lookup = 0;
}
