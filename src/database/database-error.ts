import Libsql from 'libsql';
import pg from 'pg';
import { OperatorError } from '../config/operator-error.js';

/** What keeps a database from being used, in words that name neither place nor user. */
export const databaseConditions = {
  away: 'The database is away',
  busy: 'The database is locked, or does not respond in time',
  full: 'The disk of the database is full',
  failing: 'The disk of the database fails',
  readOnly: 'The database is read-only',
} as const;

/** One of them, by its name. */
export type DatabaseCondition = keyof typeof databaseConditions;

/** The database cannot be opened, brought up to date or used. The message is one sentence for the operator, with what to do. */
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

/** Whether a statement failed because a record with the same unique value is already there. */
export function isUniqueViolation(error: unknown): boolean {
  if (error instanceof Libsql.SqliteError) return sqliteCodes.has(error.code);
  return error instanceof pg.DatabaseError && error.code === postgresCode;
}

/** What an operator can do about a failure, by the code that Node or PostgreSQL gives it. */
const remedies: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there; start PostgreSQL or correct host and port',
  ENOTFOUND: 'nothing has that name; correct the host',
  EAI_AGAIN: 'its name cannot be looked up now; check the name server',
  ETIMEDOUT: 'it does not answer; check host, port and firewall',
  EHOSTUNREACH: 'it cannot be reached; check host and network',
  ENETUNREACH: 'it cannot be reached; check host and network',
  ECONNRESET: 'it closed the connection; look at its log',
  '28P01': 'it refuses the password; correct user and password',
  '28000': 'it does not let this user in from here; look at its pg_hba.conf',
  '3D000': 'there is no such database; create it first',
  '42501': 'the user may not connect to it; grant CONNECT',
  '53300': 'it has too many connections; allow more, or stop some',
  '57014': 'a statement took too long; look for what holds it up, or allow it more time',
  '55P03': 'another one uses what has to be changed; look for what is long under way, a backup perhaps, and try again',
  '25P03': 'it ended a transaction that had paused; try again',
  '25006': 'it takes no changes, as a standby does; point the URL at the primary',
  '40P01': 'it ended a deadlock; try again',
  '53100': 'its disk is full; make room',
  '57P01': 'it is being stopped; try again',
  '57P03': 'it is starting or stopping; try again',
};

const conditions: readonly (readonly [codes: RegExp, condition: DatabaseCondition])[] = [
  [/^53100$/, 'full'],
  [/^25006$/, 'readOnly'],
  [/^58/, 'failing'],
  [/^(?:40|53|55P03$|57014$)/, 'busy'],
];

/** What a failure says of the database. */
export function postgresCondition(error: unknown): DatabaseCondition {
  const { code, message = '' } = error as { readonly code?: unknown; readonly message?: string };
  const known = conditions.find(([codes]) => typeof code === 'string' && codes.test(code));
  if (known !== undefined) return known[1];
  return /timeout/i.test(message) ? 'busy' : 'away';
}

/** One sentence about why PostgreSQL cannot be connected to. It quotes nothing of the URL but the place. */
export function explainPostgresFailure(error: unknown, place: string): string {
  return `The PostgreSQL database ${place} cannot be used: ${remedyFor(error)}.`;
}

function remedyFor(error: unknown): string {
  const { code, message = '' } = error as { readonly code?: unknown; readonly message?: string };
  const known = typeof code === 'string' && Object.hasOwn(remedies, code) ? remedies[code] : undefined;
  if (known !== undefined) return known;
  if (/read timeout/i.test(message)) return 'it did not answer in time; check that it still runs';
  if (/timeout/i.test(message)) return 'no connection was free or made in time; check that it answers';
  if (/SSL|certificate|self.signed/i.test(`${String(code)} ${message}`)) {
    return 'TLS cannot be agreed on; check sslmode and the certificate';
  }
  if (/SASL|password must be/i.test(message)) return 'it asks for a password; put one into the URL';
  return 'the connection failed; look at its log';
}

/**
 * Host and database of a URL, without user and password.
 * @throws DatabaseError for a URL that cannot be read
 */
export function placeIn(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  const name = parsed === null ? null : decoded(parsed.pathname.slice(1));
  if (parsed === null || name === null) {
    throw new DatabaseError(
      'The PostgreSQL URL cannot be read: write postgres://USER:PASSWORD@HOST:PORT/DATABASE, with %40 for an @ in the password and so on.',
    );
  }
  return `${name === '' ? 'of its user' : name} at ${parsed.host === '' ? 'this machine' : parsed.host}`;
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
