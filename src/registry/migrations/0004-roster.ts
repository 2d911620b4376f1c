import { sql, type Kysely, type Migration } from '../../database/kysely.js';
import { addSequence, lockTables } from '../../database/dialects.js';

/**
 * The table `gateways` is the roster, the list of gateways that are allowed to use cached records. `restores` lists the
 * restores of the database from a backup. `held_back` lists records that a restore could have reactivated. New columns
 * store the names of changes, and the state of the gateways' store at its last comparison with the database.
 */
export const roster: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;
    // Changes lock these tables too, so locks one after another could deadlock. This migration locks all of them at
    // once, also for the next migrations, which run in the same transaction.
    await lockTables(database, ['revision', 'outbox', 'merchants', 'api_keys', 'events']);
    await addSequence(database, schema.createTable('restores'), 'seq')
      .addColumn('found_at', 'bigint', (column) => column.notNull())
      .addColumn('newest_at', 'bigint')
      .addColumn('is_certain', 'integer', (column) => column.notNull())
      .execute();
    await schema
      .createTable('held_back')
      .addColumn('id', 'text', (column) => column.primaryKey())
      .addColumn('kind', 'text', (column) => column.notNull().check(sql`kind in ('key', 'merchant')`))
      .addColumn('merchant_id', 'text', (column) => column.notNull())
      .addColumn('source', 'text', (column) => column.notNull())
      .addColumn('was', 'text', (column) => column.notNull())
      .addColumn('found_at', 'bigint', (column) => column.notNull())
      .execute();
    await schema
      .createTable('gateways')
      .addColumn('instance_id', 'text', (column) => column.primaryKey())
      .addColumn('host', 'text', (column) => column.notNull())
      .addColumn('environment', 'text', (column) => column.notNull().check(sql`environment in ('live', 'test')`))
      .addColumn('version', 'text')
      .addColumn('first_seen', 'bigint', (column) => column.notNull())
      .addColumn('lifetime_milliseconds', 'bigint', (column) => column.notNull())
      .addColumn('revision', 'bigint', (column) => column.notNull())
      .execute();
    // Uses a statement for each column, because SQLite can add only one column per statement.
    const change = (table: string) => schema.alterTable(table);
    await change('outbox').addColumn('change', 'text').execute();
    await change('revision').addColumn('servers', 'text').execute();
    await change('revision')
      .addColumn('is_open', 'integer', (column) => column.notNull().defaultTo(0))
      .execute();
    await change('revision').addColumn('opens_at', 'bigint').execute();
    await change('revision')
      .addColumn('published_revision', 'bigint', (column) => column.notNull().defaultTo(0))
      .execute();
    await change('revision').addColumn('published_change', 'text').execute();
  },
};
