// The steps of a registry: compare Redis with SQL, rebuild Redis, publish changes, observe the gateways, and report "in
// force". state.ts explains the terms of the protocol.
import { deleteAcknowledgement, deleteGrant, LIFE, OLD, restartSilence } from './rules.js';
import type { Mechanisms, Rules, Step } from './rules.js';
import { pick } from './state.js';
import type { Registry, Server, State, Watch } from './state.js';

/** What a registry does next. In the phase `steady` it waits for changes. */
export const phases = {
  compare: 0,
  rebuild: 1,
  steady: 2,
  publish: 3,
  notePublished: 4,
  writeMeta: 5,
  noteServer: 6,
  /** Only with two registries: the lease was checked, and the registry compares next. */
  leased: 7,
} as const;

/** The steps of one registry. */
export class RegistrySteps {
  readonly #rules: Rules;
  readonly #mechanisms: Mechanisms;
  readonly #index: number;
  readonly #name: string;
  readonly #isOneOfTwo: boolean;

  constructor(rules: Rules, index: number) {
    this.#rules = rules;
    this.#mechanisms = rules.mechanisms;
    this.#index = index;
    this.#isOneOfTwo = rules.setup.registries > 1;
    this.#name = this.#isOneOfTwo ? `registry ${index}` : 'registry';
  }

  /** Calls `step` for each possible step of the registry. */
  steps(now: State, step: Step): void {
    const rules = this.#rules;
    const registry = this.#of(now);
    if (registry.up === 0) {
      this.#start(step);
      return;
    }
    const talks = rules.talks(now, registry);
    const isWorking = registry.phase !== phases.compare && registry.phase !== phases.leased;
    // A revision is written to the master that has mg:meta. So it can be published while the other master is down.
    const mayPublish = rules.setup.cluster === 'records' && registry.phase === phases.publish;
    if (isWorking && !talks) {
      step(`${this.#name} loses its connection`, (next) => {
        stopWork(this.#of(next));
      });
    }
    if (this.#isOneOfTwo) this.#takeLease(now, step);
    this.#compare(now, step);
    if (talks) {
      this.#rebuild(now, step);
      this.#publishChanges(now, step);
      this.#checkGateways(now, step);
      this.#grant(now, step);
    } else if (mayPublish) this.#publish(now, step);
    if (this.#isOneOfTwo) this.#reportInTwoReads(now, step);
    else if (talks) this.#report(now, step);
  }

  #of(state: State): Registry {
    return pick(state.registries, this.#index);
  }

  #server(state: State): Server {
    return pick(state.servers, this.#of(state).connection - 1);
  }

  /** Whether a transaction of this registry may write. */
  #hasLease(state: State): boolean {
    return !this.#isOneOfTwo || !this.#mechanisms.checkLease || state.sql.lease === this.#index;
  }

  /** Whether Redis accepts a write of this registry: it does as long as it has this registry's mark. */
  #hasMark(state: State): boolean {
    return !this.#rules.keepsMark || !this.#mechanisms.mark || this.#server(state).mark === this.#of(state).mark;
  }

  #start(step: Step): void {
    step(`${this.#name} starts`, (next) => {
      this.#of(next).up = 1;
      if (!this.#mechanisms.durable) for (const row of next.sql.rows) row.sessions = 0;
    });
  }

  /** A SQL transaction. A registry that has lost its lease detects this in the transaction, and stops its work. */
  #transaction(now: State, step: Step, label: string, change: (next: State) => void): void {
    const hasLease = this.#hasLease(now);
    step(hasLease ? `${this.#name} ${label}` : `${this.#name} finds that its lease is lost`, (next) => {
      if (hasLease) change(next);
      else stopWork(this.#of(next));
    });
  }

  /** A write that Redis accepts only as long as it has this registry's mark. Otherwise the registry stops its work. */
  #guardedWrite(now: State, step: Step, label: string, change: (next: State) => void): void {
    const hasMark = this.#hasMark(now);
    step(hasMark ? `${this.#name} ${label}` : `${this.#name} finds another writer's mark`, (next) => {
      if (hasMark) change(next);
      else stopWork(this.#of(next));
    });
  }

  #takeLease(now: State, step: Step): void {
    const holder = pick(now.registries, now.sql.lease);
    const mayTake = now.sql.lease !== this.#index && holder.up === 0;
    if (mayTake) {
      step(`${this.#name} takes the lease`, (next) => {
        next.sql.lease = this.#index;
        stopWork(this.#of(next));
      });
    }
    if (this.#of(now).phase === phases.compare && now.sql.lease === this.#index) {
      step(`${this.#name} checks its lease`, (next) => {
        this.#of(next).phase = phases.leased;
      });
    }
  }

  #compare(now: State, step: Step): void {
    const rules = this.#rules;
    const start = this.#isOneOfTwo ? phases.leased : phases.compare;
    const meta = rules.metaMaster(now);
    const records = rules.recordsMaster(now);
    if (this.#of(now).phase !== start) return;
    if (pick(now.servers, meta).up !== 1 || pick(now.servers, records).up !== 1) return;
    step(`${this.#name} compares`, (next) => {
      const registry = this.#of(next);
      const server = pick(next.servers, meta);
      for (const watch of registry.watches) watch.noticed = 0;
      if (this.#mechanisms.recount) restartSilence(registry);
      registry.connection = meta + 1;
      registry.run = server.run;
      registry.run2 = rules.isCluster ? pick(next.servers, records).run : 0;
      this.#putMark(next, server);
      if (this.#hasLease(next)) this.#decideContinuity(next, server);
      else stopWork(registry);
    });
  }

  /** Puts the mark of this registry into Redis, so that Redis rejects later writes with another mark. */
  #putMark(next: State, server: Server): void {
    if (!this.#rules.keepsMark) return;
    const registry = this.#of(next);
    const fresh = [1, 2, 3].find((mark) => mark !== server.mark && mark !== next.world.lateMark) ?? 0;
    registry.mark = this.#isOneOfTwo ? this.#index + 1 : fresh;
    server.mark = registry.mark;
  }

  #decideContinuity(next: State, server: Server): void {
    const { sql } = next;
    const mechanisms = this.#mechanisms;
    const registry = this.#of(next);
    const isBehind =
      server.revision > sql.revision ||
      (mechanisms.countEnrolments && server.roster > sql.roster) ||
      (mechanisms.changeId && server.revision > 0 && server.change !== sql.change) ||
      (registry.knows === 1 && registry.published > sql.revision);
    const holdsAll =
      server.generation > 0 &&
      server.generation === sql.generation &&
      server.revision >= sql.published &&
      (!mechanisms.compareMarkers || this.#isWhole(next, server));
    registry.to = 0;
    registry.wait = 0;
    if (holdsAll && !isBehind && this.#isSameServer(next, registry, server)) {
      registry.phase = phases.steady;
      registry.published = server.revision;
      registry.generation = sql.generation;
      if (sql.open === 0 && mechanisms.openInSql) registry.hold = LIFE;
    } else {
      registry.phase = phases.rebuild;
      registry.wait = this.#waitAfter(next, server, isBehind);
      registry.hold = registry.wait;
      if (mechanisms.newGeneration || isBehind) sql.generation = this.#rules.freshGeneration(next);
      if (isBehind) {
        sql.revision = Math.max(sql.revision, server.revision, registry.knows === 1 ? registry.published : 0);
      }
      sql.open = 0;
      sql.run = 0;
      sql.run2 = 0;
      registry.generation = sql.generation;
      this.#readChanges(next);
    }
    registry.knows = 1;
  }

  /** Whether the marker of K's slot shows that the slot has every change. */
  #isWhole(state: State, server: Server): boolean {
    if (!this.#rules.isCluster) return true;
    const records = pick(state.servers, this.#rules.recordsMaster(state));
    return records.slotGeneration === server.generation && records.slotRevision >= server.needed;
  }

  #isSameServer({ sql }: State, { run, run2 }: Registry, server: Server): boolean {
    if (!this.#mechanisms.confirm) return true;
    return server.server === run && sql.run === run && server.server2 === run2 && sql.run2 === run2;
  }

  #waitAfter(next: State, server: Server, isBehind: boolean): number {
    const { sql } = next;
    const mechanisms = this.#mechanisms;
    const hold = mechanisms.hold && this.#rules.canFailOver ? 1 : 0;
    const isEmpty = server.generation === 0 && server.revision === 0;
    const isBlank = isEmpty && ((sql.revision === 0 && sql.k === 0) || !mechanisms.onlyBlankOpens);
    const isOldForm = server.generation > 0 && server.server === 0 && mechanisms.oldFormUnproven;
    const saw = this.#of(next).knows === 1 && (sql.open === 1 || !mechanisms.openInSql);
    return isBlank || (saw && !isBehind && !isOldForm) || !mechanisms.unproven ? hold : LIFE;
  }

  /** With two registries: reads from SQL what a later step writes to Redis. A pause is possible in between. */
  #readChanges(next: State): void {
    if (!this.#isOneOfTwo) return;
    const registry = this.#of(next);
    registry.k = next.sql.k;
    registry.to = next.sql.revision;
    registry.change = next.sql.change;
  }

  #rebuild(now: State, step: Step): void {
    const { phase } = this.#of(now);
    if (phase === phases.rebuild) {
      this.#guardedWrite(now, step, 'writes all records', (next) => {
        this.#writeRecords(next, true);
        this.#of(next).phase = phases.writeMeta;
      });
    }
    if (phase === phases.writeMeta) {
      this.#guardedWrite(now, step, 'writes mg:meta', (next) => {
        this.#writeMeta(next);
      });
    }
    if (phase === phases.noteServer) {
      this.#transaction(now, step, 'notes the server in SQL', (next) => {
        const registry = this.#of(next);
        next.sql.run = registry.run;
        next.sql.run2 = registry.run2;
        next.sql.published = registry.published;
        registry.phase = phases.steady;
      });
    }
  }

  #writeMeta(next: State): void {
    const { sql } = next;
    const mechanisms = this.#mechanisms;
    const registry = this.#of(next);
    const server = this.#server(next);
    server.revision = registry.to;
    server.change = this.#isOneOfTwo ? registry.change : sql.change;
    server.generation = registry.generation;
    server.server = registry.run;
    server.server2 = registry.run2;
    server.roster = sql.roster;
    if (this.#rules.isCluster) server.needed = registry.to;
    if (mechanisms.holdFromMeta) registry.hold = registry.wait;
    registry.wait = 0;
    if (mechanisms.grantGeneration && mechanisms.newGeneration) server.grants.forEach(deleteGrant);
    registry.published = server.revision;
    registry.phase = phases.noteServer;
  }

  #writeRecords(next: State, isRebuild: boolean): void {
    const rules = this.#rules;
    const registry = this.#of(next);
    const at = rules.recordsMaster(next);
    const server = pick(next.servers, at);
    const k = this.#isOneOfTwo ? registry.k : next.sql.k;
    if (!this.#isOneOfTwo) registry.to = next.sql.revision;
    const isOlder = this.#mechanisms.recordGuard && server.guard === 1 && k !== 2 && !isRebuild;
    const written = isOlder ? server.k : k;
    if (server.k !== written || server.q !== next.sql.q) rules.notify(next, at);
    server.k = written;
    server.q = next.sql.q;
    server.guard = written === 2 ? 1 : 0;
    if (!rules.isCluster) return;
    const isWhole = server.slotGeneration === registry.generation;
    if (!isRebuild && !isWhole) return;
    server.slotGeneration = registry.generation;
    server.slotRevision = Math.max(isWhole ? server.slotRevision : 0, registry.to);
  }

  #publishChanges(now: State, step: Step): void {
    const { sql } = now;
    const registry = this.#of(now);
    const server = this.#server(now);
    const isOwn = server.generation === registry.generation && registry.generation === sql.generation;
    if (registry.phase === phases.steady && sql.published < sql.revision && isOwn) {
      if (this.#isOneOfTwo && registry.to !== sql.revision) {
        this.#transaction(now, step, 'reads the changes', (next) => {
          this.#readChanges(next);
        });
      } else {
        this.#guardedWrite(now, step, 'writes the changed records', (next) => {
          this.#writeRecords(next, false);
          this.#of(next).phase = phases.publish;
        });
      }
    }
    this.#publish(now, step);
    if (registry.phase === phases.notePublished) {
      this.#transaction(now, step, 'notes in SQL what is published', (next) => {
        next.sql.published = this.#of(next).published;
        this.#of(next).phase = phases.steady;
      });
    }
    if (registry.phase !== phases.steady) return;
    const isWhole = !this.#mechanisms.compareMarkers || this.#isWhole(now, server);
    if (!isOwn || server.revision < registry.published || !isWhole) {
      step(`${this.#name} finds another store`, (next) => {
        this.#of(next).phase = phases.compare;
      });
    }
    if (registry.hold === 0 && sql.open === 0) {
      this.#transaction(now, step, 'opens', (next) => {
        next.sql.open = 1;
      });
    }
  }

  #publish(now: State, step: Step): void {
    if (this.#of(now).phase !== phases.publish || this.#server(now).up !== 1) return;
    this.#guardedWrite(now, step, 'publishes the revision', (next) => {
      const registry = this.#of(next);
      const server = this.#server(next);
      registry.phase = phases.compare;
      if (server.generation !== registry.generation) return;
      server.revision = registry.to;
      server.change = this.#isOneOfTwo ? registry.change : next.sql.change;
      if (this.#rules.isCluster) server.needed = registry.to;
      registry.published = registry.to;
      registry.phase = phases.notePublished;
    });
  }

  #checkGateways(now: State, step: Step): void {
    const { sql } = now;
    const registry = this.#of(now);
    const server = this.#server(now);
    if (registry.phase !== phases.steady || server.generation !== sql.generation) return;
    step(`${this.#name} looks at the gateways`, (next) => {
      registry.watches.forEach((_, g) => {
        this.#checkGateway(next, g);
      });
    });
    if (this.#mechanisms.countEnrolments && sql.roster > server.roster) {
      this.#guardedWrite(now, step, 'counts the enrolment in mg:meta', (next) => {
        this.#server(next).roster = 1;
      });
    }
    registry.watches.forEach((watch, g) => {
      if (watch.over === 0) return;
      const session = (watch.over - 1) % 2;
      if (watch.over <= 2) {
        this.#transaction(now, step, `deletes the row of gateway ${g}`, (next) => {
          pick(next.sql.rows, g).sessions &= ~(1 << session);
          pick(this.#of(next).watches, g).over += 2;
        });
      } else {
        step(`${this.#name} deletes the grant and the acknowledgement of gateway ${g}`, (next) => {
          const { grants, acknowledgements } = this.#server(next);
          if (pick(grants, g).session === session) deleteGrant(pick(grants, g));
          const acknowledgement = pick(acknowledgements, g);
          const isFormer = acknowledgement.generation === 0 && this.#mechanisms.keepFormerAcknowledgement;
          if (acknowledgement.session === session && !isFormer) deleteAcknowledgement(acknowledgement);
          pick(this.#of(next).watches, g).over = 0;
        });
      }
    });
  }

  /** Updates what the registry knows of a gateway: that it is new or alive, has left, or was silent for LIFE. */
  #checkGateway(next: State, g: number): void {
    const mechanisms = this.#mechanisms;
    const watch = pick(this.#of(next).watches, g);
    const row = pick(next.sql.rows, g);
    const acknowledgement = pick(this.#server(next).acknowledgements, g);
    const bit = 1 << acknowledgement.session;
    if (acknowledgement.state === 1) {
      if (acknowledgement.age < silenceOf(watch, acknowledgement.session)) {
        setSilence(watch, acknowledgement.session, 0);
      }
      if (mechanisms.roster && (row.sessions & bit) === 0 && this.#hasLease(next)) {
        row.sessions |= bit;
        next.sql.roster = 1;
        setSilence(watch, acknowledgement.session, 0);
      }
    }
    if (mechanisms.noticeProvesLife && watch.noticed === 1) {
      watch.silent0 = 0;
      watch.silent1 = 0;
    }
    watch.noticed = 0;
    if (acknowledgement.state === 2) this.#remove(next, g, acknowledgement.session);
    for (let session = 0; session < this.#rules.sessions; session++) {
      const isAlive = acknowledgement.state === 1 && acknowledgement.session === session && acknowledgement.age < LIFE;
      const isInRoster = (row.sessions & (1 << session)) !== 0;
      if (isInRoster && silenceOf(watch, session) >= LIFE && !isAlive) this.#remove(next, g, session);
    }
  }

  #remove(next: State, g: number, session: number): void {
    const server = this.#server(next);
    const watch = pick(this.#of(next).watches, g);
    const acknowledgement = pick(server.acknowledgements, g);
    const grant = pick(server.grants, g);
    if (this.#isOneOfTwo) {
      if (watch.over === 0) watch.over = 1 + session;
      return;
    }
    if (this.#mechanisms.longAcknowledgements) {
      if (watch.over !== 0) return;
      watch.over = 3 + session;
      pick(next.sql.rows, g).sessions &= ~(1 << session);
      return;
    }
    pick(next.sql.rows, g).sessions &= ~(1 << session);
    if (grant.session === session) deleteGrant(grant);
    if (acknowledgement.state === 2) deleteAcknowledgement(acknowledgement);
  }

  #grant(now: State, step: Step): void {
    const { sql } = now;
    const mechanisms = this.#mechanisms;
    const registry = this.#of(now);
    const server = this.#server(now);
    if (!mechanisms.enrol) return;
    registry.watches.forEach((_, g) => {
      if (this.#isOneOfTwo) this.#grantInSteps(now, step, g);
      if (this.#isOneOfTwo || registry.phase !== phases.steady || server.generation !== sql.generation) return;
      const acknowledgement = pick(server.acknowledgements, g);
      const hasRow = (pick(sql.rows, g).sessions & (1 << acknowledgement.session)) !== 0;
      if (acknowledgement.state !== 1 || acknowledgement.generation !== sql.generation) return;
      if ((mechanisms.countEnrolments && server.roster === 0) || (mechanisms.rowFirst && !hasRow)) return;
      step(`${this.#name} grants gateway ${g}`, (next) => {
        if (!mechanisms.rowFirst) pick(this.#of(next).watches, g).noticed = 0;
        this.#writeGrant(next, g, acknowledgement.generation, acknowledgement.age);
      });
    });
  }

  /** Reads the beat, then checks the lease, then writes the grant, with possible pauses in between. */
  #grantInSteps(now: State, step: Step, g: number): void {
    const { sql } = now;
    const registry = this.#of(now);
    const watch = pick(registry.watches, g);
    const acknowledgement = pick(this.#server(now).acknowledgements, g);
    const { leaseAfterBeats } = this.#mechanisms;
    const maySee =
      registry.phase === phases.steady &&
      acknowledgement.state === 1 &&
      acknowledgement.generation === registry.generation &&
      (!this.#mechanisms.countEnrolments || this.#server(now).roster > 0);
    if (watch.beat === 0 && maySee && (leaseAfterBeats || watch.mayGrant === 1)) {
      step(`${this.#name} reads the beat of gateway ${g}`, (next) => {
        pick(this.#of(next).watches, g).beat = 1 + acknowledgement.age;
        pick(this.#of(next).watches, g).beatGeneration = acknowledgement.generation;
      });
    }
    const mayCheck = registry.phase === phases.steady && watch.mayGrant === 0 && (watch.beat > 0 || !leaseAfterBeats);
    if (mayCheck && (pick(sql.rows, g).sessions & 1) !== 0) {
      this.#transaction(now, step, `checks its lease to grant gateway ${g}`, (next) => {
        pick(this.#of(next).watches, g).mayGrant = 1;
      });
    }
    if (watch.beat > 0 && watch.mayGrant === 1) {
      step(`${this.#name} grants gateway ${g}`, (next) => {
        this.#writeGrant(next, g, watch.beatGeneration, watch.beat - 1);
        clearGranting(pick(this.#of(next).watches, g));
      });
    }
  }

  #writeGrant(next: State, g: number, generation: number, age: number): void {
    const server = this.#server(next);
    const grant = pick(server.grants, g);
    grant.state = 1;
    grant.session = this.#isOneOfTwo ? 0 : pick(server.acknowledgements, g).session;
    grant.generation = generation;
    grant.age = age;
  }

  #report(now: State, step: Step): void {
    const { sql, world } = now;
    const mechanisms = this.#mechanisms;
    const registry = this.#of(now);
    const server = this.#server(now);
    if (registry.phase !== phases.steady) return;
    if (sql.open === 0 && (mechanisms.unproven || mechanisms.hold)) return;
    if (server.generation !== sql.generation && mechanisms.atomicList) return;
    const isInForce = (revision: number): boolean =>
      sql.published >= revision && now.gateways.every((_, g) => this.#isSettled(now, g, revision));
    if (sql.k === 2 && world.saidK !== 1 && isInForce(world.revisionK)) {
      step(`${this.#name}: K is IN FORCE`, (next) => {
        next.world.saidK = 1;
      });
    }
    if (sql.q === 1 && world.saidQ === 0 && this.#rules.setup.createsQ && isInForce(world.revisionQ)) {
      step(`${this.#name}: Q is IN FORCE`, (next) => {
        next.world.saidQ = 1;
      });
    }
  }

  /** Whether the registry no longer waits for a gateway to acknowledge a revision. */
  #isSettled(now: State, g: number, revision: number): boolean {
    const mechanisms = this.#mechanisms;
    const watch = pick(this.#of(now).watches, g);
    const acknowledgement = pick(this.#server(now).acknowledgements, g);
    const hasAcknowledged = this.#hasAcknowledged(now, g, revision, now.sql.generation);
    if (acknowledgement.state === 1 && !hasAcknowledged) return false;
    if (!mechanisms.roster) return true;
    // A pending notice makes the registry read the gateway's state again. Until then the registry does not decide.
    if (mechanisms.noticeProvesLife && watch.noticed === 1) return false;
    for (let session = 0; session < this.#rules.sessions; session++) {
      const isInRoster = (pick(now.sql.rows, g).sessions & (1 << session)) !== 0;
      if (!isInRoster || (hasAcknowledged && acknowledgement.session === session)) continue;
      if (silenceOf(watch, session) < LIFE) return false;
    }
    return true;
  }

  #hasAcknowledged(now: State, g: number, revision: number, generation: number): boolean {
    const { ackGeneration, formerPending } = this.#mechanisms;
    const acknowledgement = pick(pick(now.servers, this.#rules.metaMaster(now)).acknowledgements, g);
    if (acknowledgement.state !== 1 || acknowledgement.revision < revision) return false;
    if (acknowledgement.generation === generation || !ackGeneration) return true;
    return acknowledgement.generation === 0 && !formerPending;
  }

  /**
   * The report about K in a world with two registries. Any registry gives it, even one without the lease. The registry
   * reads SQL in one step and Redis in the next.
   */
  #reportInTwoReads(now: State, step: Step): void {
    const { sql, world } = now;
    const registry = this.#of(now);
    const server = pick(now.servers, this.#rules.metaMaster(now));
    if (registry.asks === 0) {
      if (sql.open === 0 || sql.k !== 2 || world.saidK === 1 || sql.published < world.revisionK) return;
      step(`${this.#name} reads the roster to answer`, (next) => {
        this.#of(next).asks = 1;
        this.#of(next).asksGeneration = next.sql.generation;
        this.#of(next).watches.forEach((watch, g) => {
          watch.row = pick(next.sql.rows, g).sessions;
        });
      });
      return;
    }
    const isNamed = server.server === server.run || !this.#mechanisms.reportNamesServer;
    const isPending = now.gateways.some((_, g) => {
      if (this.#hasAcknowledged(now, g, world.revisionK, registry.asksGeneration)) return false;
      return pick(server.acknowledgements, g).state === 1 || pick(registry.watches, g).row !== 0;
    });
    const isInForce = server.up === 1 && server.generation === registry.asksGeneration && isNamed && !isPending;
    step(`${this.#name}: K is ${isInForce ? 'IN FORCE' : 'pending'}`, (next) => {
      if (isInForce) next.world.saidK = 1;
      clearReport(this.#of(next));
    });
  }
}

/** Makes a registry stop its work. It then compares again, and determines anew which gateways have ended. */
function stopWork(registry: Registry): void {
  registry.phase = phases.compare;
  registry.connection = 0;
  for (const watch of registry.watches) {
    watch.over = 0;
    clearGranting(watch);
  }
}

/** The process of a registry ends. */
export function crash(registry: Registry, mechanisms: Mechanisms): void {
  stopWork(registry);
  clearReport(registry);
  registry.up = 0;
  registry.knows = 0;
  registry.run = 0;
  registry.run2 = 0;
  registry.hold = 0;
  registry.published = 0;
  registry.to = 0;
  registry.wait = 0;
  registry.k = 0;
  registry.generation = 0;
  registry.change = 0;
  registry.mark = 0;
  for (const watch of registry.watches) watch.noticed = 0;
  if (mechanisms.recount || !mechanisms.roster) restartSilence(registry);
}

/** A tick of the clock of a registry's process. */
export function ageRegistry(registry: Registry, sessions: number): void {
  if (registry.up === 1) {
    for (const watch of registry.watches) {
      watch.silent0 = Math.min(LIFE, watch.silent0 + 1);
      if (sessions > 1) watch.silent1 = Math.min(LIFE, watch.silent1 + 1);
      if (watch.beat > 0) watch.beat = Math.min(1 + OLD, watch.beat + 1);
    }
  }
  if (registry.hold > 0) registry.hold--;
}

function silenceOf(watch: Watch, session: number): number {
  return session === 0 ? watch.silent0 : watch.silent1;
}

function setSilence(watch: Watch, session: number, silence: number): void {
  if (session === 0) watch.silent0 = silence;
  else watch.silent1 = silence;
}

function clearGranting(watch: Watch): void {
  watch.beat = 0;
  watch.beatGeneration = 0;
  watch.mayGrant = 0;
}

function clearReport(registry: Registry): void {
  registry.asks = 0;
  registry.asksGeneration = 0;
  for (const watch of registry.watches) watch.row = 0;
}
