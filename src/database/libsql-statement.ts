import type { CompiledQuery, QueryResult } from './kysely.js';
import Database from 'libsql';
import { DatabaseError, type DatabaseCondition } from './database-error.js';

/**
 * Runs one statement.
 * @throws DatabaseError for what an operator can mend
 */
export function runStatement<Row>(
  database: Database.Database,
  { sql, parameters }: Pick<CompiledQuery, 'sql' | 'parameters'>,
): QueryResult<Row> {
  return sayingWhy(() => {
    const statement = database.prepare(sql);
    const values = parameters.map(bindable);
    if (statement.reader) return { rows: statement.all(values) as Row[] };
    const { changes, lastInsertRowid } = statement.run(values);
    return { numAffectedRows: BigInt(changes), insertId: BigInt(lastInsertRowid), rows: [] };
  });
}

interface Failure {
  readonly codes: RegExp;
  readonly condition: DatabaseCondition;
  readonly remedy: string;
}

const failures: readonly Failure[] = [
  {
    codes: /^SQLITE_(?:BUSY|LOCKED)/,
    condition: 'busy',
    remedy: 'it is locked by another program; let that one end, or end it',
  },
  { codes: /^SQLITE_FULL/, condition: 'full', remedy: 'its disk is full; make room' },
  { codes: /^SQLITE_READONLY/, condition: 'readOnly', remedy: 'it is read-only; let this user write it' },
  { codes: /^SQLITE_(?:IOERR|CANTOPEN)/, condition: 'failing', remedy: 'its disk fails; check the disk and its quota' },
];

/** Makes what an operator can mend a DatabaseError; what is wrong with a statement stays as it is. */
export function sayingWhy<Result>(act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    const code = error instanceof Database.SqliteError ? error.code : '';
    const failure = failures.find(({ codes }) => codes.test(code));
    if (failure === undefined) throw error;
    const { condition, remedy } = failure;
    throw new DatabaseError(`The SQLite database cannot be used (${code}): ${remedy}.`, { cause: error, condition });
  }
}

/**
 * libsql binds every number as a REAL, cuts a text at its first NUL and aborts the whole process on a boolean: integers
 * go in as integers, and whatever would not come back as it went in is refused here.
 */
function bindable(value: unknown): unknown {
  if (value === null || typeof value === 'bigint' || value instanceof Uint8Array) return value;
  if (typeof value === 'number' && Number.isSafeInteger(value)) return BigInt(value);
  if (typeof value === 'number' && !Number.isInteger(value) && Number.isFinite(value)) return value;
  if (typeof value === 'string' && !unstorable.test(value)) return value;
  throw new TypeError(`a ${typeof value} of this value cannot be stored without changing it`);
}

const unstorable = /\0|\p{Surrogate}/u;
