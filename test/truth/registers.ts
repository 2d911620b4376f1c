import { isInForce, type HistoryEvent, type Restore } from './history.js';

/** One value that a register may have from some moment on. */
interface Step {
  readonly values: readonly string[];
  /** From when it can be seen. */
  readonly begun: number;
  /** From when nothing before it can be seen; Infinity where nobody said so. */
  readonly inForce: number;
  /** Until when a call whose response is missing can still take effect. */
  readonly mayApplyUntil: number;
}

/** What a restored database must not make of a key or a merchant that Redis knows otherwise. */
const valid = ['active', 'ACTIVE'];

/** The values that each register may have shown to a request, by what the registry had said until then. */
export class Registers {
  readonly #steps = new Map<string, Step[]>();

  constructor(events: readonly HistoryEvent[]) {
    const ends = events.filter((event) => event.kind === 'ended');
    const ordered = events.filter((event) => event.kind === 'change' || event.kind === 'restore');
    // A change that was made while the database was being put back may be lost.
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

  /** What a request between two moments may have met. A register that nobody wrote before is `absent`. */
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

  /** The last moment before `at` from which something about this register was in force; null where nothing was. */
  inForceBefore(register: string, at: number): number | null {
    const times = (this.#steps.get(register) ?? []).map(({ inForce }) => inForce).filter((time) => time < at);
    return times.length === 0 ? null : Math.max(...times);
  }

  #add(register: string, step: Step): void {
    const steps = this.#steps.get(register) ?? [];
    steps.push(step);
    this.#steps.set(register, steps);
  }

  /** Whatever the copy held can be seen again, until a later change of it is in force; but for what the registry has to hold back. */
  #restore(restore: Restore): void {
    const { copyBegun, copyEnded, begun, ended } = restore;
    for (const [register, steps] of this.#steps) {
      // A change is in the copy if it had ended before; it may be if it was under way.
      const last = steps.findLastIndex((step) => step.mayApplyUntil <= copyBegun);
      const held = steps.slice(Math.max(last, 0)).filter((step) => step.begun < copyEnded);
      const values = new Set(held.flatMap((step) => step.values));
      if (last < 0) values.add('absent');
      if (this.#isHeldBack(register, restore)) for (const value of valid) values.delete(value);
      steps.push({ values: [...values], begun, inForce: Infinity, mayApplyUntil: ended });
    }
  }

  /** Whether Redis certainly knows a key as revoked, or a merchant as INACTIVE: a change was in force, and Redis has lost nothing since it began. */
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
