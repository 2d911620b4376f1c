import { Random } from '../../fuzz/random.js';

/** Draws from the distributions of the traffic model. */
export class Draws {
  readonly #random: Random;

  constructor(seed: number) {
    this.#random = new Random(seed);
  }

  /** A random number from 0 up to, but not including, 1. */
  share(): number {
    return this.#random.below(1 << 30) / (1 << 30);
  }

  isTrue(probability: number): boolean {
    return this.share() < probability;
  }

  below(most: number): number {
    return this.#random.below(most);
  }

  between(least: number, most: number): number {
    return least + this.share() * (most - least);
  }

  whole(least: number, most: number): number {
    return least + this.below(most - least + 1);
  }

  pick<Choice>(choices: readonly Choice[]): Choice {
    return this.#random.pick(choices);
  }

  /** Draws one of the choices. A choice with twice the weight is drawn twice as often. */
  weighted<Choice>(choices: readonly (readonly [choice: Choice, weight: number])[]): Choice {
    let rest = this.share() * choices.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [choice, weight] of choices) {
      rest -= weight;
      if (rest < 0) return choice;
    }
    throw new Error('there is nothing to draw');
  }

  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.share())) * Math.cos(2 * Math.PI * this.share());
  }

  logNormal(median: number, sigma: number): number {
    return median * Math.exp(sigma * this.normal());
  }

  /** Draws a number of events with this mean (Poisson distribution). */
  count(mean: number): number {
    if (mean > 50) return Math.max(0, Math.round(mean + Math.sqrt(mean) * this.normal()));
    const least = Math.exp(-mean);
    let count = 0;
    for (let product = this.share(); product > least; product *= this.share()) count += 1;
    return count;
  }
}
