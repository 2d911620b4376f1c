import { OperatorError } from '../config/operator-error.js';

/** What keeps a database from being used. */
export type DatabaseCondition = 'away' | 'busy' | 'full' | 'failing' | 'readOnly';

/** The database cannot be opened, brought up to date or used. The message is one sentence for the operator, with what to do. */
export class DatabaseError extends OperatorError {
  readonly condition: DatabaseCondition;

  constructor(message: string, options?: ErrorOptions & { readonly condition?: DatabaseCondition }) {
    super(message, options);
    this.name = 'DatabaseError';
    this.condition = options?.condition ?? 'away';
  }
}
