// The protocol as steps that change one state. Each step has a condition. Time passes only in the step `tick`. Any
// number of ticks can occur between two other steps, which models pauses. The state holds no time of day: it counts
// ticks since an event, or until one. state.ts explains the terms of the protocol.
import { bitOf, Faults } from './faults.js';
import { ageEntries, ageGateway, GatewaySteps } from './gateway.js';
import { ageRegistry, phases, RegistrySteps } from './registry.js';
import { deleteAcknowledgement, OLD, Rules } from './rules.js';
import type { Mechanisms, Setup, Step, StepKind } from './rules.js';
import { createState, pick } from './state.js';
import type { State } from './state.js';

/** Steps, promises and health of one world. README.md in this folder lists the promises, I1 to I4. */
export class Protocol {
  readonly #rules: Rules;
  readonly #now: State;
  readonly #next: State;
  readonly #gateways: readonly GatewaySteps[];
  readonly #registries: readonly RegistrySteps[];
  readonly #faults: Faults;
  readonly #asked: number;

  constructor(mechanisms: Mechanisms, setup: Setup) {
    const counts = { ...setup, servers: setup.cluster === 'no' ? setup.servers : 3 };
    this.#rules = new Rules(mechanisms, setup);
    this.#now = createState(counts);
    this.#next = createState(counts);
    const first = createState(counts);
    fillFirst(first, setup);
    this.#faults = new Faults(this.#rules, first);
    this.#gateways = first.gateways.map((_, index) => new GatewaySteps(this.#rules, index));
    this.#registries = first.registries.map((_, index) => new RegistrySteps(this.#rules, index));
    this.#asked = setup.shows.reduce((bits, kind) => bits | bitOf(kind), 0);
    this.first = first.bytes;
  }

  /** The first state of a search. */
  readonly first: Uint8Array;

  /** Sets the current state. */
  load(bytes: Uint8Array): void {
    this.#now.bytes.set(bytes);
  }

  /** Calls `visit` with each successor of the current state. Its bytes are valid only during the call. */
  successors(visit: (label: string, bytes: Uint8Array, kind: StepKind) => void): void {
    const now = this.#now;
    const next = this.#next;
    const step: Step = (label, change, kind = 'step') => {
      next.bytes.set(now.bytes);
      change(next);
      visit(label, next.bytes, kind);
    };
    step('tick', (after) => {
      this.#tick(after);
    });
    this.#administer(step);
    for (const registry of this.#registries) registry.steps(now, step);
    this.#faults.arriveLate(now, step);
    for (const gateway of this.#gateways) gateway.steps(now, step);
    this.#expire(step);
    this.#faults.steps(now, step);
  }

  #tick(next: State): void {
    next.gateways.forEach(ageGateway);
    ageEntries(this.#rules, next);
    for (const registry of next.registries) ageRegistry(registry, this.#rules.sessions);
  }

  /**
   * With `longAcknowledgements`, an acknowledgement expires after three lifetimes (LIFE). The model lets it expire at
   * any moment after the first lifetime.
   */
  #expire(step: Step): void {
    this.#now.servers.forEach((server, index) => {
      server.acknowledgements.forEach((acknowledgement, g) => {
        if (acknowledgement.age < OLD || !this.#rules.of(g).longAcknowledgements) return;
        step(`the acknowledgement of gateway ${g} expires`, (next) => {
          const ended = pick(pick(next.servers, index).acknowledgements, g);
          deleteAcknowledgement(ended);
          this.#rules.announce(next, index, g);
        });
      });
    });
  }

  /** Changes by administrators: K is revoked, Q is created; in a new database, K is created first. */
  #administer(step: Step): void {
    const { sql, world, registries } = this.#now;
    if (registries.every(({ up }) => up === 0) || sql.revision >= 4) return;
    if (sql.k === 1) {
      step(
        'admin: revoke K',
        (next) => {
          next.sql.k = 2;
          next.world.revisionK = ++next.sql.revision;
        },
        'command',
      );
    }
    if (sql.k === 0 && world.revisionK === 0) {
      step(
        'admin: create K',
        (next) => {
          next.sql.k = 1;
          next.world.revisionK = ++next.sql.revision;
        },
        'command',
      );
    }
    if (this.#rules.setup.createsQ && sql.q === 0) {
      step(
        'admin: create Q',
        (next) => {
          next.sql.q = 1;
          next.world.revisionQ = ++next.sql.revision;
        },
        'command',
      );
    }
  }

  /** The promise that the current state breaks, and the party that breaks it; null if none. */
  broken(): string | null {
    const now = this.#now;
    const { world } = now;
    if ((world.used & this.#asked) !== this.#asked) return null;
    for (const [index, gateway] of now.gateways.entries()) {
      if (gateway.state !== 1) continue;
      const mechanisms = this.#rules.of(index);
      const holds = this.#rules.holds(gateway, mechanisms);
      const readsThrough = this.#rules.readsThrough(now, gateway, mechanisms);
      // `saidK` is 2 if Redis restarted on a snapshot of the former release. Only a gateway that has seen an mg:meta
      // with servers knows that this snapshot is old.
      if (world.saidK === 1 || (world.saidK === 2 && gateway.renewed === 1)) {
        if (holds && gateway.k === 1) return `I1: gateway ${index} accepts K from memory`;
        if (readsThrough && this.#rules.recordsServerOf(now, gateway).k === 1) {
          return `I1: gateway ${index} reads K and accepts it`;
        }
        const joins = gateway.lookup === 1 && this.#rules.reaches(now, gateway) && (holds || !mechanisms.enrol);
        if (joins) return `I1: gateway ${index} joins a look-up that began earlier`;
      }
      if (world.saidQ === 1 && readsThrough && this.#rules.recordsServerOf(now, gateway).q === 0) {
        const server = this.#rules.metaServerOf(now, gateway);
        if (server.generation === gateway.generation) return `I2: gateway ${index} says that Q is unknown`;
      }
      const isOnlyCrash = (world.used & ~bitOf('crash')) === 0;
      const hasBeaten = gateway.beat === 0 && gateway.generation > 0 && this.#rules.reaches(now, gateway);
      if (isOnlyCrash && hasBeaten && gateway.believes === 0) {
        return `I4: gateway ${index} refuses, and only the registry is away`;
      }
    }
    return null;
  }

  /** Whether the state is healthy: every gateway decides by the newest records, and every change is in force. */
  isGood(): boolean {
    const { world, sql, registries, gateways } = this.#now;
    const holder = pick(registries, sql.lease);
    if (holder.up === 0 || holder.phase !== phases.steady || sql.open === 0 || sql.published !== sql.revision)
      return false;
    if (!this.#rules.talks(this.#now, holder)) return false;
    if ((sql.k === 2 && world.saidK !== 1) || (sql.q === 1 && world.saidQ === 0)) return false;
    return gateways.every((gateway, index) => gateway.state !== 1 || this.#isHealthy(index));
  }

  #isHealthy(index: number): boolean {
    const { sql } = this.#now;
    const mechanisms = this.#rules.of(index);
    const gateway = pick(this.#now.gateways, index);
    if (!this.#rules.readsThrough(this.#now, gateway, mechanisms)) return false;
    const isCurrent = gateway.generation === sql.generation && gateway.highest === sql.revision;
    const isOnMaster = gateway.connection - 1 === this.#rules.metaMaster(this.#now);
    return isCurrent && isOnMaster && this.#rules.holds(gateway, mechanisms);
  }

  /** The fields of a state that are not 0. */
  describe(bytes: Uint8Array): Record<string, number> {
    return Object.fromEntries(
      this.#now.names.map((name, index) => [name, bytes[index] ?? 0] as const).filter(([, value]) => value !== 0),
    );
  }
}

/** Fills the first state: K is active in SQL and Redis, and no gateway is enrolled. A blank world has no records. */
function fillFirst(state: State, setup: Setup): void {
  const { world, sql, servers, registries, gateways } = state;
  const hasCluster = setup.cluster !== 'no';
  world.linked = setup.servers > 1 ? 1 : 0;
  sql.open = 1;
  for (const [index, server] of servers.entries()) {
    server.up = 1;
    server.run = index + 1;
  }
  for (const gateway of gateways) gateway.link = 1;
  if (setup.blank) return;
  sql.k = 1;
  sql.generation = 1;
  const meta = setup.cluster === 'records' ? 2 : 0;
  const records = setup.cluster === 'meta' ? 2 : 0;
  sql.run = meta + 1;
  sql.run2 = hasCluster ? records + 1 : 0;
  for (const server of servers) {
    server.generation = 1;
    server.server = sql.run;
    server.server2 = sql.run2;
    server.k = 1;
    server.slotGeneration = hasCluster ? 1 : 0;
    server.mark = setup.registries > 1 ? 1 : 0;
  }
  for (const [index, registry] of registries.entries()) {
    registry.up = 1;
    if (index > 0) continue;
    registry.phase = phases.steady;
    registry.knows = 1;
    registry.connection = meta + 1;
    registry.run = sql.run;
    registry.run2 = sql.run2;
    registry.generation = 1;
    registry.mark = setup.registries > 1 ? 1 : 0;
  }
}
