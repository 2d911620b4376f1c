import { isInForce, type HistoryEvent, type Restore } from './history.js';

/**
 * The possible values of a register from a certain time on. A register is one value: the state of a key, or the status
 * or the allowlist of a merchant. Changes write it, and the responses to requests reveal it.
 */
interface Step {
  readonly values: readonly string[];
  /** From when requests can observe these values. */
  readonly begun: number;
  /** From when requests must not observe older values; Infinity if no registry reported "in force". */
  readonly inForce: number;
  /** Until when the change can still take effect. Without a response, that is when the process of the registry ends. */
  readonly mayApplyUntil: number;
}

/** The values that a restore must not bring back for a key or merchant that Redis has as revoked or INACTIVE. */
const valid = ['active', 'ACTIVE'];

/** Derives from the registry's responses which values of each register a request may observe at its time. */
export class Registers {
  readonly #steps = new Map<string, Step[]>();

  constructor(events: readonly HistoryEvent[]) {
    const ends = events.filter((event) => event.kind === 'ended');
    const ordered = events.filter((event) => event.kind === 'change' || event.kind === 'restore');
    // A change that begins during a restore may be lost, so it is ordered before the restore.
    ordered.sort((one, other) => orderOf(one) - orderOf(other));
    for (const event of ordered) {
      if (event.kind === 'restore') this.#restore(event);
      else {
        const { status, party, begun, ended } = event;
        if (status !== null && status >= 400 && status < 500) continue;
        const late = ends.find((end) => end.party === party && end.at > begun)?.at ?? Infinity;
        const step = {
          begun,
          inForce: isInForce(event) ? ended : Infinity,
          mayApplyUntil: status === null ? late : ended,
        };
        for (const { register, value } of event.writes) this.#add(register, { ...step, values: [value] });
      }
    }
  }

  /** The values that a request between two times may observe. A register without earlier writes is `absent`. */
  possible(register: string, from: number, to: number): ReadonlySet<string> {
    const steps = this.#steps.get(register) ?? [];
    const values = new Set<string>();
    let floor: Step | null = null;
    for (let index = steps.length - 1; index >= 0; index -= 1) {
      const step = steps[index];
      if (step === undefined || step.begun >= to) continue;
      if (floor === null || step.mayApplyUntil > floor.begun) for (const value of step.values) values.add(value);
      if (floor === null && step.inForce < from) floor = step;
    }
    if (floor === null) values.add('absent');
    return values;
  }

  /** The last time before `at` at which a write of this register came into force; null if there is none. */
  inForceBefore(register: string, at: number): number | null {
    const times = (this.#steps.get(register) ?? []).map(({ inForce }) => inForce).filter((time) => time < at);
    return times.length === 0 ? null : Math.max(...times);
  }

  #add(register: string, step: Step): void {
    const steps = this.#steps.get(register) ?? [];
    steps.push(step);
    this.#steps.set(register, steps);
  }

  /**
   * Adds the values in the restored copy: requests can observe them again until a later change is in force. Leaves out
   * valid values that the registry holds back, because Redis has the key as revoked or the merchant as INACTIVE.
   */
  #restore(restore: Restore): void {
    const { copyBegun, copyEnded, begun, ended } = restore;
    for (const [register, steps] of this.#steps) {
      // A change that ended before the copy is in the copy; a change in progress may be.
      const last = steps.findLastIndex((step) => step.mayApplyUntil <= copyBegun);
      const held = steps.slice(Math.max(last, 0)).filter((step) => step.begun < copyEnded);
      const values = new Set(held.flatMap((step) => step.values));
      if (last < 0) values.add('absent');
      if (this.#isHeldBack(register, restore)) for (const value of valid) values.delete(value);
      steps.push({ values: [...values], begun, inForce: Infinity, mayApplyUntil: ended });
    }
  }

  /**
   * Whether Redis certainly has the key as revoked, or the merchant as INACTIVE: that was in force before the restore,
   * and Redis has lost nothing since.
   */
  #isHeldBack(register: string, { begun, ended, storeKeptSince }: Restore): boolean {
    const known = (this.#steps.get(register) ?? []).findLast(({ inForce }) => inForce < begun);
    if (known === undefined || known.begun < storeKeptSince) return false;
    const values = this.possible(register, begun, ended);
    return valid.every((value) => !values.has(value));
  }
}

function orderOf(event: Extract<HistoryEvent, { kind: 'change' | 'restore' }>): number {
  return event.kind === 'restore' ? event.ended : event.begun;
}
