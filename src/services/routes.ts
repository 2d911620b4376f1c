import type { DatabaseClock } from '../database/dialects.js';
import { Refusal } from '../rest/refusal.js';
import type { idParams, RestApp } from '../rest/rest-app.js';
import type { Static } from '../typebox/typebox.js';
import type { BankOptions } from './payouts/simulated-bank.js';
import { uuidForm } from './fields.js';
import type { ServicesDatabase } from './services-database.js';

/** What routes work with. */
export interface RouteContext {
  readonly database: ServicesDatabase;
  readonly clock: DatabaseClock;
  readonly bank: BankOptions;
  /** Idempotency keys of which this process is carrying out a request, with whose they are. */
  readonly running: Set<string>;
}

/** Adds the routes of one kind of record. */
export type Routes = (app: RestApp, context: RouteContext) => void;

/**
 * The id in a path, as it is stored. What cannot be an id is answered like one that nobody has.
 * @throws Refusal
 */
export function idIn({ id }: Static<typeof idParams>, what: string): string {
  if (!uuidForm.test(id)) throw Refusal.notFound(what);
  return id.toLowerCase();
}
