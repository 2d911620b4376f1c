import { Connection, type Target } from './connection.js';

/** Open connections; a broken connection fails the current work. */
export class Connections {
  readonly all: Connection[] = [];
  #fail: (error: Error) => void = () => undefined;

  static async open(target: Target, count: number): Promise<Connections> {
    const opened = new Connections();
    const open = async (): Promise<void> => {
      const connection = await Connection.open(target, (reason) => {
        opened.#fail(new Error(reason));
      });
      opened.all.push(connection);
    };
    await Promise.all(Array.from({ length: count }, open));
    return opened;
  }

  /** Runs `work`, and resolves when it calls `done`. Rejects if it calls `fail` or if a connection breaks. */
  use(work: (done: () => void, fail: (error: Error) => void) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#fail = reject;
      work(resolve, reject);
    });
  }

  close(): void {
    for (const connection of this.all) connection.close();
  }
}
