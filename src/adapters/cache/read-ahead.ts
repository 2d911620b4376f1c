/** A reading of records that nobody has asked for. What may have changed since it began is not held. */
export class ReadAhead {
  readonly #changed = new Set<string>();
  #isOver: boolean;

  constructor(isOver: boolean) {
    this.#isOver = isOver;
  }

  changed(id: string): void {
    if (!this.#isOver) this.#changed.add(id);
  }

  /** From now on nothing of it is held. */
  end(): void {
    this.#isOver = true;
    this.#changed.clear();
  }

  mayHold(id: string): boolean {
    return !this.#isOver && !this.#changed.has(id);
  }
}
