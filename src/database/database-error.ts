import Libsql from 'libsql';
import pg from 'pg';
import { OperatorError } from '../config/operator-error.js';

/** Messages that say why a database is unusable. `/readyz` shows them to any client, so they name no host or user. */
export const databaseConditions = {
  away: 'The database is unavailable',
  busy: 'The database is locked or overloaded, or does not respond in time',
  full: 'The disk of the database is full',
  failing: 'The disk of the database fails',
  readOnly: 'The database is read-only',
} as const;

/** The reason why a database is unusable, as a key of `databaseConditions`. */
export type DatabaseCondition = keyof typeof databaseConditions;

/** Thrown if the database cannot be opened, migrated or used. Its message tells the operator what to do. */
export class DatabaseError extends OperatorError {
  readonly condition: DatabaseCondition;

  constructor(message: string, options?: ErrorOptions & { readonly condition?: DatabaseCondition }) {
    super(message, options);
    this.name = 'DatabaseError';
    this.condition = options?.condition ?? 'away';
  }
}

const sqliteCodes = new Set(['SQLITE_CONSTRAINT_UNIQUE', 'SQLITE_CONSTRAINT_PRIMARYKEY']);
const postgresCode = '23505';

/** Whether a statement failed because a row with the same unique value exists already. */
export function isUniqueViolation(error: unknown): boolean {
  if (error instanceof Libsql.SqliteError) return sqliteCodes.has(error.code);
  return error instanceof pg.DatabaseError && error.code === postgresCode;
}

interface SqliteFailure {
  readonly codes: RegExp;
  readonly condition: DatabaseCondition;
  readonly remedy: string;
}

const sqliteFailures: readonly SqliteFailure[] = [
  {
    codes: /^SQLITE_(?:BUSY|LOCKED)/,
    condition: 'busy',
    remedy: 'it is locked by another program; wait for that program, or stop it',
  },
  { codes: /^SQLITE_FULL/, condition: 'full', remedy: 'its disk is full; make room' },
  {
    codes: /^SQLITE_READONLY/,
    condition: 'readOnly',
    remedy: 'it is read-only; give the user of this process write access',
  },
  {
    codes: /^SQLITE_IOERR/,
    condition: 'failing',
    remedy: 'reading or writing its files failed; check the disk and its quota',
  },
  {
    codes: /^SQLITE_CANTOPEN/,
    condition: 'away',
    remedy:
      'one of its files cannot be opened; check that its directory exists, that the user of this process can write ' +
      'to the directory and its files, and that the limit of open files is high enough',
  },
];

/** Returns a DatabaseError if an operator can fix the failure of SQLite; null for an error of the statement itself. */
export function sqliteFailureOf(error: unknown): DatabaseError | null {
  const code = error instanceof Libsql.SqliteError ? error.code : '';
  const failure = sqliteFailures.find(({ codes }) => codes.test(code));
  if (failure === undefined) return null;
  const { condition, remedy } = failure;
  return new DatabaseError(`The SQLite database cannot be used (${code}): ${remedy}.`, { cause: error, condition });
}

/** Texts with the cause and the remedy of a failure, by Node error code or SQLSTATE. Operators see these texts. */
const remedies: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused; start PostgreSQL, or correct the host and the port',
  ENOTFOUND: 'its host name does not exist; correct the host',
  EAI_AGAIN: 'its host name cannot be resolved now; check the name server',
  ETIMEDOUT: 'it does not respond; check host, port and firewall',
  EHOSTUNREACH: 'it cannot be reached; check host and network',
  ENETUNREACH: 'it cannot be reached; check host and network',
  ECONNRESET: 'it closed the connection; check its log',
  '28P01': 'it rejects the password; correct the user or the password',
  '28000': 'it rejects this user from this host; check that the user exists, and check the file pg_hba.conf',
  '3D000': 'there is no such database; create it first',
  '42501': 'the user lacks the privilege to connect to it; grant CONNECT',
  '53300': 'it has too many connections; allow more, or close some',
  '57014': 'a statement took too long; find what blocks the statement, or raise statementTimeoutSeconds',
  '55P03':
    'another session holds a lock that this process needs; find the transaction of that session (such as a backup), and try again when the transaction has ended',
  '25P03': 'it ended a transaction that was idle for too long; try again',
  '25006': 'it is read-only, so it may be a standby; point the URL at the primary',
  '40P01': 'it stopped the transaction to end a deadlock; try again',
  '53100': 'its disk is full; make room',
  '57P01': 'it is shutting down; try again',
  '57P03': 'it is starting or stopping; try again',
};

const conditions: readonly (readonly [codes: RegExp, condition: DatabaseCondition])[] = [
  [/^53100$/, 'full'],
  [/^25006$/, 'readOnly'],
  [/^58/, 'failing'],
  [/^(?:40|53|55P03$|57014$)/, 'busy'],
];

/**
 * Returns the reason why PostgreSQL is unusable, by the error's SQLSTATE. If the error has no SQLSTATE, or `conditions`
 * does not contain it, the message decides: `busy` if it mentions a timeout, otherwise `away`.
 */
function postgresCondition(error: unknown): DatabaseCondition {
  const { code, message = '' } = error as { readonly code?: unknown; readonly message?: string };
  const known = conditions.find(([codes]) => typeof code === 'string' && codes.test(code));
  if (known !== undefined) return known[1];
  return /timeout/i.test(message) ? 'busy' : 'away';
}

/**
 * Converts a failure of PostgreSQL to a DatabaseError, whose message tells the operator why PostgreSQL is unusable.
 * @param place the host and database of the URL, without the rest, which can contain a password
 */
export function postgresFailure(error: unknown, place: string): DatabaseError {
  return new DatabaseError(`The PostgreSQL database ${place} cannot be used: ${remedyFor(error)}.`, {
    cause: error,
    condition: postgresCondition(error),
  });
}

function remedyFor(error: unknown): string {
  const { code, message = '' } = error as { readonly code?: unknown; readonly message?: string };
  const known = typeof code === 'string' && Object.hasOwn(remedies, code) ? remedies[code] : undefined;
  if (known !== undefined) return known;
  if (/read timeout/i.test(message)) return 'it did not respond in time; check that it still runs';
  if (/timeout/i.test(message)) return 'no connection became available in time; check that PostgreSQL responds';
  if (/SSL|certificate|self.signed/i.test(`${String(code)} ${message}`)) {
    return 'the TLS handshake failed; check sslmode and the certificate';
  }
  if (/SASL|password must be/i.test(message)) return 'it requires a password; add one to the URL';
  return 'the connection failed; check the log of PostgreSQL';
}

/**
 * Returns the host and database of a URL, without user and password.
 * @throws DatabaseError if the URL is malformed
 */
export function hostAndDatabaseOf(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  const name = parsed === null ? null : decoded(parsed.pathname.slice(1));
  if (parsed === null || name === null) {
    throw new DatabaseError(
      'The PostgreSQL URL is malformed: write postgres://USER:PASSWORD@HOST:PORT/DATABASE, and percent-encode special characters (e.g. %40 for an @ in the password).',
    );
  }
  return `${name === '' ? '(named after the user)' : name} ${parsed.host === '' ? 'on this machine' : `at ${parsed.host}`}`;
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
