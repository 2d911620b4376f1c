// The steps of a gateway: connect, beat, receive notices, read, leave. state.ts explains the terms of the protocol.
import { deleteAcknowledgement, forget, loseConnections, LIFE, OLD, STALE } from './rules.js';
import type { Mechanisms, Rules, Step } from './rules.js';
import { pick } from './state.js';
import type { Gateway, State } from './state.js';

/** The value of `beat` if the beat has read an mg:meta of the former release. */
const oldFormBeat = 2;
/** The value of `enrolled` of a gateway that caches records without a grant, as the former release does. */
const byOldForm = 2;

/** The steps of one gateway. */
export class GatewaySteps {
  readonly #rules: Rules;
  readonly #mechanisms: Mechanisms;
  readonly #index: number;
  readonly #name: string;

  constructor(rules: Rules, index: number) {
    this.#rules = rules;
    this.#mechanisms = rules.of(index);
    this.#index = index;
    this.#name = `gateway ${index}`;
  }

  /** Calls `step` for each possible step of the gateway. */
  steps(now: State, step: Step): void {
    const rules = this.#rules;
    const gateway = this.#of(now);
    if (gateway.state !== 1) {
      this.#start(now, step);
      return;
    }
    if (rules.setup.leaves) this.#end(now, step);
    this.#connect(now, step);
    if (!rules.reaches(now, gateway)) return;
    if (gateway.notice !== 0) {
      step(`${this.#name} hears the notice`, (next) => {
        this.#hear(this.#of(next));
      });
    }
    if (gateway.beat === 0) {
      step(`${this.#name} begins a beat`, (next) => {
        this.#beginBeat(next);
      });
    } else {
      step(`${this.#name} ends the beat`, (next) => {
        this.#endBeat(next);
      });
    }
    this.#read(now, step);
  }

  #of(state: State): Gateway {
    return pick(state.gateways, this.#index);
  }

  #start(now: State, step: Step): void {
    const { setup } = this.#rules;
    if (this.#of(now).state !== 0 && !setup.leaves) return;
    const session = this.#rules.freshSession(now, this.#index);
    if (session < 0) return;
    step(`${this.#name} starts`, (next) => {
      const gateway = this.#of(next);
      stop(gateway);
      gateway.state = 1;
      gateway.session = session;
      gateway.age = OLD;
      gateway.link = 1;
    });
  }

  #end(now: State, step: Step): void {
    const rules = this.#rules;
    const end = (next: State): void => {
      stop(this.#of(next));
      this.#of(next).state = 2;
    };
    const leave = (next: State): void => {
      const { connection, session } = this.#of(next);
      const acknowledgement = pick(pick(next.servers, connection - 1).acknowledgements, this.#index);
      acknowledgement.state = 2;
      acknowledgement.session = session;
      acknowledgement.age = 0;
      rules.announce(next, connection - 1, this.#index);
    };
    step(`${this.#name} is killed`, end);
    if (this.#mechanisms.leaveLast) {
      step(`${this.#name} leaves`, (next) => {
        if (rules.reaches(next, this.#of(next))) leave(next);
        end(next);
      });
    } else if (rules.reaches(now, this.#of(now))) step(`${this.#name} says that it leaves`, leave);
  }

  #connect(now: State, step: Step): void {
    const rules = this.#rules;
    const gateway = this.#of(now);
    const target = gateway.side === 1 ? 0 : now.world.master;
    const meta = rules.setup.cluster === 'records' ? 2 : target;
    const records = rules.setup.cluster === 'meta' ? 2 : target;
    if (gateway.link !== 1 || gateway.connection !== 0) return;
    if (pick(now.servers, meta).up !== 1 || pick(now.servers, records).up !== 1) return;
    step(`${this.#name} connects`, (next) => {
      const connecting = this.#of(next);
      loseConnections(connecting);
      connecting.connection = meta + 1;
      connecting.connection2 = rules.isCluster ? records + 1 : 0;
      if (!this.#mechanisms.keepAsStale) connecting.k = 0;
    });
  }

  #beginBeat(next: State): void {
    const rules = this.#rules;
    const mechanisms = this.#mechanisms;
    const gateway = this.#of(next);
    if (mechanisms.budgetEnds && gateway.age > STALE) forget(gateway);
    const meta = rules.metaServerOf(next, gateway);
    const records = rules.recordsServerOf(next, gateway);
    const isOldForm = meta.server === 0 && !(mechanisms.neverOldForm && gateway.renewed === 1);
    const isNamed = meta.server === meta.run && (!rules.isCluster || meta.server2 === records.run);
    const isMine = meta.generation === gateway.generation && (gateway.enrolled === 1 || !mechanisms.enrol);
    const isBack = meta.generation === gateway.generation && meta.revision < gateway.highest;
    const isConfirmed = !mechanisms.confirm || isNamed || isOldForm || (mechanisms.memory && isMine);
    this.#hear(gateway);
    if (meta.generation === 0 || (mechanisms.neverBack && isBack) || !isConfirmed) {
      gateway.believes = 0;
      return;
    }
    gateway.beat = meta.server === 0 && mechanisms.enrol ? oldFormBeat : 1;
    gateway.beatGeneration = meta.generation;
    gateway.beatRevision = meta.revision;
    gateway.beatNeeded = meta.needed;
    gateway.beatAge = 0;
    gateway.beatSure = this.#isConfirmedMaster(next) ? 1 : 0;
  }

  /** Whether the beat itself shows that the server is still the master. */
  #isConfirmedMaster(state: State): boolean {
    const rules = this.#rules;
    const { witness } = this.#mechanisms;
    if (!rules.canFailOver || witness === 'none' || witness === 'wait1') return true;
    const gateway = this.#of(state);
    const isOnMeta = gateway.connection - 1 === rules.metaMaster(state);
    const isOnMasters = isOnMeta && (!rules.isCluster || gateway.connection2 - 1 === rules.recordsMaster(state));
    if (witness === 'waitAll') return isOnMasters && state.world.linked === 1;
    return isOnMasters && witness !== 'echo';
  }

  #endBeat(next: State): void {
    const rules = this.#rules;
    const mechanisms = this.#mechanisms;
    const gateway = this.#of(next);
    if (rules.isCluster) {
      const records = rules.recordsServerOf(next, gateway);
      const isWhole = records.slotGeneration === gateway.beatGeneration && records.slotRevision >= gateway.beatNeeded;
      gateway.whole = isWhole ? 1 : 0;
      if (!isWhole && mechanisms.slotMarkers) {
        gateway.believes = 0;
        endOf(gateway);
        return;
      }
    }
    this.#acknowledge(next);
    const grant = pick(rules.metaServerOf(next, gateway).grants, this.#index);
    if (mechanisms.budgetEnds && mechanisms.checkAtEnd && gateway.age > STALE) forget(gateway);
    const isGranted =
      grant.state === 1 &&
      grant.session === gateway.session &&
      (!mechanisms.grantGeneration || grant.generation === gateway.beatGeneration) &&
      (gateway.enrolled === 1 || !mechanisms.freshGrant || grant.age <= STALE);
    if (gateway.beat === oldFormBeat) gateway.enrolled = byOldForm;
    else gateway.enrolled = !mechanisms.enrol || isGranted ? 1 : 0;
    if (mechanisms.emptyUnenrolled && gateway.enrolled === 0) forget(gateway);
    if (gateway.beatSure === 1) gateway.age = gateway.beatAge;
    else if (rules.canFailOver && mechanisms.witness.includes('echo') && gateway.enrolled === 1 && grant.state === 1) {
      gateway.age = Math.min(gateway.age, grant.age);
    }
    // Records cached before this connection may have changed without a notice.
    if (gateway.hot === 0) gateway.k = 0;
    gateway.hot = 1;
    const isNewGeneration = gateway.beatGeneration !== gateway.generation;
    gateway.highest = isNewGeneration ? gateway.beatRevision : Math.max(gateway.highest, gateway.beatRevision);
    gateway.generation = gateway.beatGeneration;
    gateway.believes = 1;
    if (rules.setup.oldSnapshot && gateway.beat !== oldFormBeat) gateway.renewed = 1;
    endOf(gateway);
  }

  #acknowledge(next: State): void {
    const gateway = this.#of(next);
    const acknowledgement = pick(this.#rules.metaServerOf(next, gateway).acknowledgements, this.#index);
    const generation = this.#index < this.#rules.setup.former ? 0 : gateway.beatGeneration;
    const isRepeated =
      acknowledgement.state === 1 &&
      acknowledgement.session === gateway.session &&
      acknowledgement.generation === generation &&
      acknowledgement.revision === gateway.beatRevision &&
      acknowledgement.age === gateway.beatAge;
    if (!isRepeated) this.#rules.announce(next, gateway.connection - 1, this.#index);
    acknowledgement.state = 1;
    acknowledgement.session = gateway.session;
    acknowledgement.generation = generation;
    acknowledgement.revision = gateway.beatRevision;
    acknowledgement.age = gateway.beatAge;
  }

  #hear(gateway: Gateway): void {
    if (gateway.notice === 0) return;
    const { notice } = gateway;
    gateway.notice = 0;
    if (!this.#mechanisms.keepAsStale || (notice === 1 && gateway.believes === 1)) gateway.k = 0;
    else gateway.hot = 0;
    if (this.#mechanisms.keepAsStale && notice >= 2) [gateway.believes, gateway.beat] = [0, 0];
    if (this.#mechanisms.closeLookups) gateway.lookup = 0;
  }

  #read(now: State, step: Step): void {
    const rules = this.#rules;
    const gateway = this.#of(now);
    const record = rules.recordsServerOf(now, gateway).k;
    const mayRead = rules.readsThrough(now, gateway, this.#mechanisms);
    const mayHold = gateway.hot === 1 && gateway.notice === 0 && rules.holds(gateway, this.#mechanisms);
    if (mayRead && mayHold && record !== 0 && record !== gateway.k) {
      step(`${this.#name} reads K`, (next) => {
        this.#of(next).k = record;
      });
    }
    if (rules.setup.lookups && mayRead && gateway.lookup === 0 && record === 1) {
      step(`${this.#name} begins to look K up`, (next) => {
        this.#of(next).lookup = 1;
      });
    }
    if (gateway.lookup === 1) {
      step(`${this.#name} has looked K up`, (next) => {
        this.#of(next).lookup = 0;
      });
    }
  }
}

/** A tick of the clock of a gateway's process. */
export function ageGateway(gateway: Gateway): void {
  if (gateway.state !== 1) return;
  gateway.age = Math.min(OLD, gateway.age + 1);
  if (gateway.beat > 0) gateway.beatAge = Math.min(OLD, gateway.beatAge + 1);
}

/**
 * A tick for the acknowledgements and grants in Redis. Without `longAcknowledgements`, an acknowledgement older than
 * LIFE expires.
 */
export function ageEntries(rules: Rules, state: State): void {
  state.servers.forEach((server, index) => {
    server.acknowledgements.forEach((acknowledgement, g) => {
      if (acknowledgement.state === 0) return;
      acknowledgement.age = Math.min(OLD, acknowledgement.age + 1);
      if (rules.of(g).longAcknowledgements || acknowledgement.age <= LIFE) return;
      deleteAcknowledgement(acknowledgement);
      if (g < rules.setup.former) rules.announce(state, index, g);
    });
    for (const grant of server.grants) if (grant.state > 0) grant.age = Math.min(OLD, grant.age + 1);
  });
}

/** The process ends. Only its place in the network stays: `link` and `side`. */
function stop(gateway: Gateway): void {
  loseConnections(gateway);
  forget(gateway);
  endOf(gateway);
  gateway.state = 0;
  gateway.session = 0;
  gateway.generation = 0;
  gateway.highest = 0;
  gateway.age = 0;
  gateway.renewed = 0;
}

function endOf(gateway: Gateway): void {
  gateway.beat = 0;
  gateway.beatGeneration = 0;
  gateway.beatRevision = 0;
  gateway.beatNeeded = 0;
  gateway.beatAge = 0;
  gateway.beatSure = 0;
}
