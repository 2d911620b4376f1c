/** Teardown handlers, run in reverse order of registration. */
export class Teardowns {
  readonly #handlers: (() => unknown)[] = [];

  teardown(handler: () => unknown): void {
    this.#handlers.push(handler);
  }

  async close(): Promise<void> {
    for (const handler of this.#handlers.splice(0).toReversed()) await handler();
  }
}
