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
