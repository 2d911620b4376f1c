import { randomUUID } from 'node:crypto';
import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import Libsql from 'libsql';
import { DatabaseError } from './database-error.js';
import { createReadableByNobodyElse } from './sqlite.js';

/**
 * Copies an SQLite database into a new file that nobody else can read, as it is at one moment, while others read it and write to it.
 * The file appears when all of it is on the disk.
 * @param source the path of the database
 * @param target the path of the new file, in a directory that there is
 * @throws DatabaseError where there is no database, the target is there already, or the copy fails
 */
export function backUpSqlite(source: string, target: string): void {
  const [from, to] = [resolve(source), resolve(target)];
  // Opening it would create it, and the backup of nothing would be taken for one.
  if (!existsSync(from)) throw new DatabaseError(`There is no database ${from}: check the configuration.`);
  const directory = dirname(to);
  if (!existsSync(directory)) throw new DatabaseError(`There is no directory ${directory}: create it first.`);
  if (existsSync(to)) throw alreadyThere(to);
  const partial = `${to}.${randomUUID()}.partial`;
  try {
    createReadableByNobodyElse(partial);
    copy(from, partial);
    synchronize(partial);
    // Not a link, which sticks and network drives often lack. A large database takes long: somebody else may have been quicker.
    if (existsSync(to)) throw alreadyThere(to);
    renameSync(partial, to);
    synchronize(directory);
  } catch (error) {
    if (error instanceof DatabaseError) throw error;
    const reason = error instanceof Error ? error.message.replace(/\.$/, '') : 'for an unknown reason';
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

function alreadyThere(path: string): DatabaseError {
  return new DatabaseError(`${path} is there already, and is left as it is: name a file that there is not.`);
}
