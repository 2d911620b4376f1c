import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import Libsql from 'libsql';
import { createReadableByNobodyElse } from '../sqlite.js';
import type { DatabaseSession } from './database-session.js';

/**
 * The lock of an SQLite database: an empty database beside it that is in an exclusive transaction. The kernel ends that
 * with the process. The database itself cannot be locked so, for others read it and write to it.
 */
export class SqliteSession implements DatabaseSession {
  readonly #location: string;
  #held: { readonly connection: Libsql.Database; readonly inode: bigint } | null = null;

  /** @param path of the database */
  constructor(path: string) {
    this.#location = `${resolve(path)}.lock`;
  }

  hold(): Promise<boolean> {
    // A file that was removed and made anew can be locked twice.
    if (this.#held !== null && this.#held.inode !== inodeOf(this.#location)) this.#letGo();
    this.#held ??= this.#take();
    return Promise.resolve(this.#held !== null);
  }

  tell(): void {
    // There is one process as a rule; another one looks now and then.
  }

  release(): Promise<void> {
    this.#letGo();
    return Promise.resolve();
  }

  close(): Promise<void> {
    return this.release();
  }

  #take(): { connection: Libsql.Database; inode: bigint } | null {
    let connection: Libsql.Database | undefined;
    try {
      // Only where there is none: when a process closes a file, the kernel ends all locks that the process has on it.
      if (inodeOf(this.#location) === null) createReadableByNobodyElse(this.#location);
      const inode = inodeOf(this.#location);
      connection = new Libsql(this.#location);
      connection.exec('pragma busy_timeout = 0');
      connection.exec('pragma journal_mode = memory'); // nothing is written, so no other file is needed
      connection.exec('begin exclusive');
      if (inode !== null && inode === inodeOf(this.#location)) return { connection, inode };
    } catch {
      // Another process has it, or the file cannot be used: then there is the lease alone.
    }
    connection?.close();
    return null;
  }

  #letGo(): void {
    this.#held?.connection.close();
    this.#held = null;
  }
}

function inodeOf(location: string): bigint | null {
  return statSync(location, { bigint: true, throwIfNoEntry: false })?.ino ?? null;
}
