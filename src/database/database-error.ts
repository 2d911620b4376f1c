import { OperatorError } from '../config/operator-error.js';

/** The database cannot be opened or brought up to date. The message is one sentence for the operator, with what to do. */
export class DatabaseError extends OperatorError {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'DatabaseError';
  }
}
