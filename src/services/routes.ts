import type { DatabaseClock } from '../database/dialects.js';
import { Refusal } from '../rest/refusal.js';
import type { idParams, RestApp } from '../rest/rest-app.js';
import type { Static } from '../typebox/typebox.js';
import type { BankOptions } from './payouts/simulated-bank.js';
import { uuidForm } from './fields.js';
import type { ServicesDatabase } from './services-database.js';

/** Dependencies of the routes. */
export interface RouteContext {
  readonly database: ServicesDatabase;
  readonly clock: DatabaseClock;
  readonly bank: BankOptions;
  /**
   * Idempotency keys of the requests in progress in this process, each with its merchant and environment. A further
   * request with one of these keys gets a 409.
   */
  readonly running: Set<string>;
}

/** Adds the routes of one kind of record. */
export type Routes = (app: RestApp, context: RouteContext) => void;

/**
 * Returns the id from a path in lower case, as stored. A malformed id gets the same 404 as an unknown one.
 * @throws Refusal 404 for a malformed id
 */
export function idIn({ id }: Static<typeof idParams>, what: string): string {
  if (!uuidForm.test(id)) throw Refusal.notFound(what);
  return id.toLowerCase();
}
