import { MalformedRecord, type RecordProblem } from '../../gateway/records.js';
import { noSeals, type Seals } from './seal.js';

/** Told of a record that cannot be used: its name, what is wrong with it, and of which kind that is. */
export type OnMalformed = (storeKey: string, problem: string, reason: RecordProblem) => void;

/** A gateway's seals. Of what it reads in each beat it tells once that it refuses it, and again when that has changed. */
export class SealCheck {
  readonly seals: Seals;
  readonly #onMalformed: OnMalformed;
  readonly #refused = new Map<string, string>();

  constructor(seals: Seals, onMalformed: OnMalformed) {
    [this.seals, this.#onMalformed] = [seals, onMalformed];
  }

  /** @throws MalformedRecord for a text that may not be believed */
  require(name: string, text: string): void {
    try {
      this.seals.require(name, text);
      this.#refused.delete(name);
    } catch (error) {
      if (error instanceof MalformedRecord && this.#refused.get(name) !== text) {
        this.#refused.set(name, text);
        this.#onMalformed(name, error.message, error.reason);
      }
      throw error;
    }
  }

  /** A text that may be believed; null for any other. */
  opened(name: string, text: string | null): string | null {
    try {
      if (text !== null) this.require(name, text);
      return text;
    } catch (error) {
      if (error instanceof MalformedRecord) return null;
      throw error;
    }
  }
}

/** Believes every text, and seals none. */
export const noCheck = new SealCheck(noSeals, () => undefined);
