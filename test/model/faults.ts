// The faults of a world, and the steps by which a state recovers. state.ts explains the terms of the protocol.
import { crash } from './registry.js';
import { deleteAcknowledgement, deleteGrant, loseConnections } from './rules.js';
import type { Rules, Step } from './rules.js';
import { faultKinds, pick } from './state.js';
import type { FaultKind, Server, State } from './state.js';

/** The bit of a kind of fault in `world.used`, which is one byte: all kinds from the eighth on share a bit. */
export function bitOf(kind: FaultKind): number {
  return 1 << Math.min(7, faultKinds.indexOf(kind));
}

/** The faults of a world. */
export class Faults {
  readonly #rules: Rules;
  /** The first state, which backups and old snapshots contain. */
  readonly #first: State;

  constructor(rules: Rules, first: State) {
    this.#rules = rules;
    this.#first = first;
  }

  /** Calls `step` for each possible fault and for each possible step of recovery. */
  steps(now: State, step: Step): void {
    this.#heal(now, step);
    this.#failRegistries(now, step);
    this.#restoreSql(now, step);
    now.servers.forEach((server, index) => {
      if (server.up === 1 && this.#rules.isMaster(now, index)) {
        this.#damage(now, step, index);
        this.#evict(now, step, index);
      }
    });
    this.#cut(now, step);
    if (this.#rules.canFailOver) this.#failOver(now, step);
  }

  #fault(now: State, step: Step, kind: FaultKind, label: string, change: (next: State) => void): void {
    if (now.world.faults[kind] >= (this.#rules.setup.faults[kind] ?? 0)) return;
    step(
      `FAULT ${label}`,
      (next) => {
        next.world.faults[kind]++;
        next.world.used |= bitOf(kind);
        change(next);
      },
      'fault',
    );
  }

  #heal(now: State, step: Step): void {
    const { world, servers, gateways } = now;
    gateways.forEach((gateway, g) => {
      if (gateway.link === 1) return;
      step(`the network of gateway ${g} heals`, (next) => {
        pick(next.gateways, g).link = 1;
      });
    });
    if (!this.#rules.canFailOver) return;
    const replica = 1 - world.master;
    const copy = (next: State): void => {
      const from = pick(next.servers, next.world.master).dataAt;
      this.#rules.replaceData(next, pick(next.servers, replica), next.bytes, from);
    };
    if (world.linked === 1 && pick(servers, replica).up === 1) step('replication', copy);
    if (world.linked === 1) return;
    step('the old master becomes a replica', (next) => {
      next.world.linked = 1;
      copy(next);
      this.#rules.disconnect(next, replica);
      for (const gateway of next.gateways) gateway.side = 0;
    });
  }

  #failRegistries(now: State, step: Step): void {
    now.registries.forEach((registry, index) => {
      if (registry.up === 0) return;
      const name = this.#rules.setup.registries > 1 ? `registry ${index}` : 'registry';
      const end = (next: State): void => {
        crash(pick(next.registries, index), this.#rules.mechanisms);
      };
      this.#fault(now, step, 'crash', `${name} crashes`, end);
      if (this.#rules.setup.lateWrites && registry.connection > 0) this.#crashInWrite(now, step, end);
    });
    if (this.#rules.setup.registries > 1 && pick(now.registries, now.sql.lease).up === 1) {
      this.#fault(now, step, 'lapse', `registry ${now.sql.lease} pauses, and the other one takes the lease`, (next) => {
        next.sql.lease = 1 - next.sql.lease;
        pick(next.registries, next.sql.lease).phase = 0;
      });
    }
  }

  #crashInWrite(now: State, step: Step, end: (next: State) => void): void {
    const { connection, mark, phase } = pick(now.registries, 0);
    const { recordGuard } = this.#rules.mechanisms;
    if (now.sql.k === 1 || !recordGuard) {
      this.#fault(now, step, 'crash', 'registry crashes, and its write of K arrives late', (next) => {
        end(next);
        next.world.late = connection;
        next.world.lateMark = mark;
      });
    }
    if (phase !== 5) return;
    this.#fault(now, step, 'crash', 'registry crashes, and its write of mg:meta arrives late', (next) => {
      end(next);
      next.world.late = 16 + connection;
      next.world.lateMark = mark;
      next.world.lateGeneration = next.sql.generation;
    });
  }

  /** A delayed write of a crashed registry reaches Redis. A delayed write of K writes K as not revoked. */
  arriveLate(now: State, step: Step): void {
    if (now.world.late === 0) return;
    const at = (now.world.late & 15) - 1;
    if (pick(now.servers, at).up !== 1) return;
    const { recordGuard, mark } = this.#rules.mechanisms;
    step('a late write arrives', (next) => {
      const { world } = next;
      const server = pick(next.servers, at);
      const isMarked = !mark || server.mark === world.lateMark;
      if (world.late > 16) {
        if (isMarked) server.generation = world.lateGeneration;
      } else if (isMarked && server.generation > 0 && !(recordGuard && server.guard === 1)) {
        server.k = 1;
        this.#rules.notify(next, at);
      }
      world.late = 0;
      world.lateMark = 0;
      world.lateGeneration = 0;
    });
  }

  #restoreSql(now: State, step: Step): void {
    if (now.registries.some(({ up }) => up === 1)) return;
    const restore = (next: State): void => {
      const { sql, world } = next;
      const { sql: first } = this.#first;
      sql.revision = first.revision;
      sql.k = first.k;
      sql.q = first.q;
      sql.generation = first.generation;
      sql.run = first.run;
      sql.run2 = first.run2;
      sql.published = first.published;
      sql.open = first.open;
      sql.roster = 0;
      sql.change = 1; // the restored database begins a history of its own
      for (const row of sql.rows) row.sessions = 0;
      world.saidQ = 0;
      world.revisionQ = 0;
    };
    this.#fault(now, step, 'restore', 'SQL comes back from a backup', (next) => {
      restore(next);
      next.world.saidK = 0;
      next.world.revisionK = 0;
    });
    // K was created in the lost database, and the new database never contains K. So an earlier report that K is revoked
    // stays valid.
    this.#fault(now, step, 'replace', 'SQL is replaced by a new database', restore);
  }

  #damage(now: State, step: Step, index: number): void {
    const rules = this.#rules;
    // In a world with a gateway of the former release, the model lets Redis fail only after a registry has given that
    // gateway a row in the roster.
    if (rules.setup.former > 0 && pick(now.sql.rows, 0).sessions === 0) return;
    const label = now.servers.length > 1 ? ` of server ${index}` : '';
    const server = (next: State): Server => pick(next.servers, index);
    const restart = (next: State): void => {
      server(next).run = rules.freshRun(next);
      rules.disconnect(next, index);
    };
    this.#fault(now, step, 'flush', `FLUSHALL${label}`, (next) => {
      rules.replaceData(next, server(next), null, 0);
      rules.notify(next, index, 2);
    });
    this.#fault(now, step, 'lose', `loss of mg:gateway:* and mg:grant:*${label}`, (next) => {
      server(next).acknowledgements.forEach(deleteAcknowledgement);
      server(next).grants.forEach(deleteGrant);
    });
    this.#fault(now, step, 'restart', `restart with nothing${label}`, (next) => {
      restart(next);
      rules.replaceData(next, server(next), null, 0);
    });
    this.#fault(now, step, 'restart', `restart on the old snapshot${label}`, (next) => {
      const old = pick(this.#first.servers, index);
      restart(next);
      rules.replaceData(next, server(next), this.#first.bytes, old.dataAt);
      if (!rules.setup.oldSnapshot) return;
      server(next).server = 0;
      if (next.world.saidK === 1) next.world.saidK = 2;
    });
    this.#fault(now, step, 'restart', `restart with everything${label}`, restart);
  }

  /** Redis loses one key by eviction or DEL, and notifies the subscribers to this key. */
  #evict(now: State, step: Step, index: number): void {
    const rules = this.#rules;
    const lose = (name: string, change: (server: Server) => void, after?: (next: State) => void): void => {
      this.#fault(now, step, 'evict', `loss of ${name}`, (next) => {
        change(pick(next.servers, index));
        after?.(next);
      });
    };
    if (index === rules.recordsMaster(now)) {
      lose(
        'the record of K',
        (server) => {
          server.k = 0;
          server.guard = 0;
        },
        (next) => {
          rules.notify(next, index);
        },
      );
      if (rules.isCluster) {
        lose('the marker of the slot', (server) => {
          server.slotGeneration = 0;
          server.slotRevision = 0;
        });
      }
    }
    if (index !== rules.metaMaster(now)) return;
    lose('mg:meta', (server) => {
      server.generation = 0;
      server.server = 0;
      server.server2 = 0;
    });
    lose('mg:revision', (server) => {
      server.revision = 0;
      server.roster = 0;
    });
    lose('mg:change', (server) => {
      server.change = 0;
    });
    if (rules.keepsMark) {
      lose("the writer's mark", (server) => {
        server.mark = 0;
      });
    }
    if (rules.isCluster) {
      lose('the index of changes', (server) => {
        server.needed = 0;
      });
    }
    now.gateways.forEach((_, g) => {
      lose(
        `the acknowledgement of gateway ${g}`,
        (server) => {
          deleteAcknowledgement(pick(server.acknowledgements, g));
        },
        (next) => {
          rules.announce(next, index, g);
        },
      );
      lose(`the grant of gateway ${g}`, (server) => {
        deleteGrant(pick(server.grants, g));
      });
    });
  }

  #cut(now: State, step: Step): void {
    now.gateways.forEach((gateway, g) => {
      if (gateway.state !== 1 || gateway.link !== 1) return;
      this.#fault(now, step, 'cut', `gateway ${g} is cut off`, (next) => {
        const lonely = pick(next.gateways, g);
        loseConnections(lonely);
        lonely.link = 0;
      });
    });
  }

  #failOver(now: State, step: Step): void {
    const old = now.world.master;
    if (now.world.linked !== 1 || pick(now.servers, 1 - old).up !== 1) return;
    const sides = old === 0 ? 1 << now.gateways.length : 1; // one bit for each gateway that stays with the old master
    for (let side = 0; side < sides; side++) {
      const stays = now.gateways.flatMap((_, g) => ((side & (1 << g)) !== 0 ? [`gateway ${g}`] : []));
      const label = stays.length > 0 ? `failover; with the old master stays ${stays.join(', ')}` : 'failover';
      this.#fault(now, step, 'failover', label, (next) => {
        next.world.master = 1 - old;
        next.world.linked = 0;
        next.gateways.forEach((gateway, g) => {
          if ((side & (1 << g)) !== 0) gateway.side = 1;
          else if (gateway.connection - 1 === old || gateway.connection2 - 1 === old) loseConnections(gateway);
        });
      });
    }
  }
}
