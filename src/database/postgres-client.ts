import type { PostgresPoolClient } from './kysely.js';
import pg from 'pg';
import { DatabaseError } from './database-error.js';
import { explainPostgresFailure, postgresCondition } from './postgres-failure.js';

/**
 * SQLSTATEs of a server that is away, full, stopping, read-only after a failover or too slow, or that has ended a deadlock:
 * the statement is not at fault, and may succeed later.
 */
const passing = /^(?:08|40|53|57|58)|^(?:25006|25P03|55P03)$/;
/** A connection to a server that is read-only stays with it; a new one is made to the first that can be written to. */
const endsConnection = /^(?:08|57P|58)|^(?:25006|25P03)$/;

/**
 * A connection lent by the pool, whose failures are told apart: what may pass is a DatabaseError, so that it is answered
 * as such, and a connection of which nobody knows what it is doing is not lent again.
 */
export class PostgresClient {
  readonly #client: pg.PoolClient;
  readonly #place: string;
  #failure: DatabaseError | null = null;

  constructor(client: pg.PoolClient, place: string) {
    this.#client = client;
    this.#place = place;
  }

  /** Cursors are for streams, of which this program has none. */
  readonly query = ((text: string, parameters: readonly unknown[] = []) =>
    this.#run(text, parameters)) as unknown as PostgresPoolClient['query'];

  release(): void {
    this.#client.release(this.#failure !== null);
  }

  async #run(text: string, parameters: readonly unknown[]): Promise<pg.QueryResult> {
    // A statement after a timed-out one would wait behind it.
    if (this.#failure !== null) throw this.#failure;
    try {
      return await this.#client.query(text, [...parameters]);
    } catch (error) {
      const state = error instanceof pg.DatabaseError ? (error.code ?? '') : null;
      if (isOfThisProgram(error) || (state !== null && !passing.test(state))) throw error;
      const failure = new DatabaseError(explainPostgresFailure(error, this.#place), {
        cause: error,
        condition: postgresCondition(error),
      });
      if (state === null || endsConnection.test(state)) this.#failure = failure;
      throw failure;
    }
  }
}

/** A value that cannot be bound or read says nothing of the connection. */
function isOfThisProgram(error: unknown): boolean {
  return error instanceof RangeError || error instanceof TypeError;
}
