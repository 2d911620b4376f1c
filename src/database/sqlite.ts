import { randomUUID } from 'node:crypto';
import { closeSync, existsSync, fsyncSync, mkdirSync, openSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import Libsql from 'libsql';
import { fileProblemOf } from '../config/operator-file.js';
import { DatabaseError } from './database-error.js';
import { LibsqlDialect } from './libsql-dialect.js';

/**
 * How long opening the database waits for a locked file. Later statements do not wait inside SQLite, because that would
 * block the event loop.
 */
const openingTimeoutMilliseconds = 5000;

/**
 * Opens an SQLite file. Creates the file and its directory if they are missing.
 * @param path path of the file, or `:memory:`
 */
export function openSqlite(path: string): LibsqlDialect {
  const location = path === ':memory:' ? path : resolve(path);
  if (location !== ':memory:') createDirectory(dirname(location));
  return new LibsqlDialect(connect(location));
}

function createDirectory(directory: string): void {
  try {
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new DatabaseError(
      `The database directory ${directory} cannot be created (${fileProblemOf(error)}): create it yourself, or choose another path.`,
      { cause: error },
    );
  }
}

/**
 * Creates a missing file with access for this user only. If SQLite created the file, every local user could read the
 * payouts and merchants in it. The WAL files inherit the mode.
 */
export function createPrivateFile(location: string): void {
  closeSync(openSync(location, 'a', 0o600));
}

function connect(location: string): Libsql.Database {
  let connection: Libsql.Database | undefined;
  try {
    if (location !== ':memory:') createPrivateFile(location);
    connection = new Libsql(location);
    connection.exec(`pragma busy_timeout = ${openingTimeoutMilliseconds}`);
    connection.exec('pragma journal_mode = wal');
    // Flush each commit to the disk: a payout that was confirmed to the client must survive a power failure.
    connection.exec('pragma synchronous = full');
    connection.exec('pragma foreign_keys = on');
    connection.exec('pragma busy_timeout = 0');
    return connection;
  } catch (error) {
    connection?.close();
    throw new DatabaseError(explain(error, location), { cause: error });
  }
}

function explain(error: unknown, location: string): string {
  const code = error instanceof Libsql.SqliteError ? error.code : '';
  if (code === 'SQLITE_NOTADB') return `${location} is not an SQLite database: move it away, or choose another path.`;
  if (code.startsWith('SQLITE_CORRUPT')) return `The database ${location} is damaged: restore it from a backup.`;
  if (code.startsWith('SQLITE_BUSY'))
    return `The database ${location} is locked by another program: stop that program first.`;
  return `The database ${location} cannot be opened for writing (${fileProblemOf(error)}): check that it is a file and that this user may write to the file and its directory.`;
}

/** Whether a file does not exist. False if this is unknown, because opening the file then reports the reason. */
export function isMissing(file: string): boolean {
  try {
    statSync(file);
    return false;
  } catch (error) {
    return ['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '');
  }
}

/**
 * Copies an SQLite database into a new file, even if the database is in use. The copy is a consistent snapshot that
 * only this user can read. It gets its final name only when it is completely on disk.
 * @param source path of the database
 * @param target path of the new file, in an existing directory
 * @throws DatabaseError when the database is missing, the target exists, or the copy fails
 */
export function backUpSqlite(source: string, target: string): void {
  const [from, to] = [resolve(source), resolve(target)];
  // Check that the database exists: SQLite would create a missing one, and its empty copy would pass for a backup.
  if (isMissing(from)) throw new DatabaseError(`There is no database ${from}: check the configuration.`);
  if (existsSync(from) && statSync(from).isDirectory())
    throw new DatabaseError(`The database ${from} is a directory: check the configuration.`);
  const directory = dirname(to);
  if (!existsSync(directory)) throw new DatabaseError(`There is no directory ${directory}: create it first.`);
  if (existsSync(to)) throw alreadyExists(to);
  const partial = `${to}.${randomUUID()}.partial`;
  try {
    createPrivateFile(partial);
    copy(from, partial);
    synchronize(partial);
    // Rename the file instead of hard-linking it, because many USB and network drives lack hard links. A rename
    // replaces an existing target, so check again for one that was created during a long copy.
    if (existsSync(to)) throw alreadyExists(to);
    renameSync(partial, to);
    synchronize(directory);
  } catch (error) {
    if (error instanceof DatabaseError) throw error;
    const reason = error instanceof Error ? error.message.replace(/\.$/, '') : 'unknown reason';
    throw new DatabaseError(`${from} could not be copied to ${to}: ${reason}.`, { cause: error });
  } finally {
    rmSync(partial, { force: true });
  }
}

function copy(source: string, target: string): void {
  const connection = new Libsql(source);
  try {
    connection.exec('pragma busy_timeout = 5000');
    connection.prepare('vacuum into ?').run(target);
  } finally {
    connection.close();
  }
}

function synchronize(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

function alreadyExists(path: string): DatabaseError {
  return new DatabaseError(`${path} already exists and was not changed: name a file that does not exist.`);
}
