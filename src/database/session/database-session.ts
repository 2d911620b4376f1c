import type { DatabaseOptions } from '../open-database.js';
import { PostgresSession } from './postgres-session.js';
import { SqliteSession } from './sqlite-session.js';

/**
 * What lasts exactly as long as a process uses a database: an exclusive lock, of which there is one in a database. Its server, or for
 * SQLite the kernel, releases it when the process ends, however it ends. So a process that gets it knows that whoever had
 * it before has ended, or has lost its connection.
 */
export interface DatabaseSession {
  /** Takes the lock where it is free, and makes sure that it is still held. False where it is not, or that is unknown. */
  hold(): Promise<boolean>;
  /** Tells the other processes with such a session that something was changed. It may be lost, so they look now and then. */
  tell(): void;
  /** Gives the lock back. */
  release(): Promise<void>;
  /** Ends the session, and the lock with it. */
  close(): Promise<void>;
}

/** A session that never has the lock: a database in memory has no other process. */
const withoutLock: DatabaseSession = {
  hold: () => Promise.resolve(false),
  tell: () => undefined,
  release: () => Promise.resolve(),
  close: () => Promise.resolve(),
};

/**
 * Opens a session of a database that `openDatabase` has opened. It connects when it is first needed.
 * @param onTold called when another process has told of a change
 */
export function openSession(
  { url }: Pick<DatabaseOptions, 'url'>,
  onTold: () => void = () => undefined,
): DatabaseSession {
  const [, path = null] = /^sqlite:(.*)$/is.exec(url) ?? [];
  if (path === null) return new PostgresSession(url, onTold);
  return path === ':memory:' ? withoutLock : new SqliteSession(path);
}
