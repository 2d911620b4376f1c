import type { Random } from '../fuzz/random.js';

/** The criteria for choosing the faults of each round. */
export interface FaultPlanOptions {
  /** The names of all possible faults. */
  readonly faults: readonly string[];
  /** How many changes the rounds of each fault need in total; null: the plan never ends. */
  readonly each: number | null;
  /** Number of consecutive faults in a round; null: one fault, or two concurrent faults. */
  readonly sequence: number | null;
  /** The faults of the first rounds, e.g. to repeat an earlier run. */
  readonly given: readonly (readonly string[])[];
}

/** Chooses the faults of each round at random, preferring faults whose rounds had the fewest changes. */
export class FaultPlan {
  readonly #options: FaultPlanOptions;
  readonly #random: Random;
  readonly #changes: Map<string, number>;
  #rounds = 0;

  constructor(random: Random, options: FaultPlanOptions) {
    this.#options = options;
    this.#random = random;
    this.#changes = new Map(options.faults.map((fault) => [fault, 0]));
  }

  /**
   * Returns the faults of the next round. Draws random numbers even if `given` names the faults, so that a repeated run
   * injects them with the same random numbers.
   */
  next(): readonly string[] {
    const random = this.#random;
    const { faults, given, sequence } = this.#options;
    const names = sequence === null ? this.#oneOrTwo() : [];
    while (names.length < (sequence ?? 0)) names.push(random.pick(this.#foremost(faults)));
    this.#rounds += 1;
    return given[this.#rounds - 1] ?? names;
  }

  /** For each fault of a round, counts the changes that were made in that round. */
  made(faults: readonly string[], changes: number): void {
    for (const fault of faults) this.#changes.set(fault, (this.#changes.get(fault) ?? 0) + changes);
  }

  /** Whether each fault has enough changes. */
  get isDone(): boolean {
    return this.#options.each !== null && this.lacking.length === 0;
  }

  /** The faults whose rounds had too few changes so far. */
  get lacking(): readonly string[] {
    const { faults, each } = this.#options;
    return each === null ? [] : faults.filter((fault) => this.#countOf(fault) < each);
  }

  #oneOrTwo(): string[] {
    const { faults } = this.#options;
    const names = [this.#random.pick(this.#foremost(faults))];
    const others = faults.filter((name) => !names.includes(name));
    if (!this.#random.oneIn(3) && others.length > 0) names.push(this.#random.pick(this.#foremost(others)));
    return names;
  }

  #foremost(faults: readonly string[]): readonly string[] {
    const lacking = this.lacking.filter((fault) => faults.includes(fault));
    if (lacking.length === 0) return faults;
    const fewest = Math.min(...lacking.map((fault) => this.#countOf(fault)));
    return lacking.filter((fault) => this.#countOf(fault) === fewest);
  }

  #countOf(fault: string): number {
    return this.#changes.get(fault) ?? 0;
  }
}
