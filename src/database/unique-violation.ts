import Libsql from 'libsql';
import pg from 'pg';

const sqliteCodes = new Set(['SQLITE_CONSTRAINT_UNIQUE', 'SQLITE_CONSTRAINT_PRIMARYKEY']);
const postgresCode = '23505';

/** Whether a statement failed because a record with the same unique value is already there. */
export function isUniqueViolation(error: unknown): boolean {
  if (error instanceof Libsql.SqliteError) return sqliteCodes.has(error.code);
  return error instanceof pg.DatabaseError && error.code === postgresCode;
}
