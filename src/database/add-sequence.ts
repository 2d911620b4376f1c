import type { CreateTableBuilder, Kysely } from './kysely.js';
import { isPostgres } from './is-postgres.js';

/**
 * Adds to a table that a migration creates a primary key that the database counts up. A number is never given twice, also
 * not after its row has gone; numbers may be left out.
 */
export function addSequence<Table extends string>(
  database: Kysely<unknown>,
  table: CreateTableBuilder<Table>,
  column: string,
) {
  return isPostgres(database)
    ? table.addColumn(column, 'bigint', (definition) => definition.primaryKey().generatedAlwaysAsIdentity())
    : table.addColumn(column, 'integer', (definition) => definition.primaryKey().autoIncrement());
}
