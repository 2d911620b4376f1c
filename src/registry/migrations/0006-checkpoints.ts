import { isPostgres } from '../../database/dialects.js';
import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * Tables for checkpoints, the signed states of access logs. They contain the keys of gateways, the runs, the
 * append-only list of signed checkpoints with its Merkle tree, and the findings. A run has the lines of one process in
 * one file. A finding is a reported problem.
 */
export const checkpoints: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;
    await schema
      .createTable('instance_keys')
      .addColumn('public_key', 'text', (column) => column.primaryKey())
      .addColumn('name', 'text', (column) => column.notNull())
      .addColumn('pinned_at', 'bigint', (column) => column.notNull())
      .addColumn('pinned_by', 'text', (column) => column.notNull())
      .addColumn('counts_from', 'bigint', (column) => column.notNull())
      .addColumn('counts_to', 'bigint')
      .addColumn('confirmed_at', 'bigint')
      .addColumn('confirmed_by', 'text')
      .execute();
    await schema.createIndex('instance_keys_of_name').on('instance_keys').column('name').execute();

    await schema
      .createTable('runs')
      .addColumn('origin', 'text', (column) => column.primaryKey())
      .addColumn('name', 'text', (column) => column.notNull())
      .addColumn('run_key', 'text', (column) => column.notNull())
      .addColumn('size', 'bigint', (column) => column.notNull())
      .addColumn('note', 'text', (column) => column.notNull())
      .addColumn('occasion', 'text', (column) => column.notNull())
      .addColumn('signed_at', 'bigint', (column) => column.notNull())
      .addColumn('began_at', 'bigint', (column) => column.notNull())
      .addColumn('received_at', 'bigint', (column) => column.notNull())
      .addColumn('listed_at', 'bigint', (column) => column.notNull())
      .addColumn('every_seconds', 'bigint', (column) => column.notNull())
      .addColumn('previous_run', 'text')
      .addColumn('next_run', 'text')
      .addColumn('was_missed', 'integer', (column) => column.notNull().defaultTo(0))
      .execute();
    await schema.createIndex('runs_list').on('runs').columns(['began_at', 'origin']).execute();
    await schema.createIndex('runs_of_name').on('runs').columns(['name', 'began_at']).execute();
    await schema.createIndex('runs_behind').on('runs').column('previous_run').execute();
    // An index of the runs to watch: a further checkpoint is due from each run that has not ended. Leaves out runs with
    // `was_missed` = 1, which are already reported as silent.
    await sql`create index runs_to_watch on runs (received_at) where was_missed = 0 and occasion <> 'end'`.execute(
      database,
    );

    await schema
      .createTable('checkpoint_list')
      .addColumn('seq', 'bigint', (column) => column.primaryKey())
      .addColumn('received_at', 'bigint', (column) => column.notNull())
      .addColumn('note', 'text', (column) => column.notNull())
      .execute();
    await schema
      .createTable('checkpoint_tree')
      .addColumn('id', 'integer', (column) => column.primaryKey().check(sql`id = 1`))
      .addColumn('size', 'bigint', (column) => column.notNull())
      .addColumn('subtrees', 'text', (column) => column.notNull())
      .execute();
    await sql`insert into checkpoint_tree (id, size, subtrees) values (1, 0, '')`.execute(database);

    await schema
      .createTable('checkpoint_findings')
      .addColumn('id', 'text', (column) => column.primaryKey())
      .addColumn('found_at', 'bigint', (column) => column.notNull())
      .addColumn('kind', 'text', (column) => column.notNull())
      .addColumn('origin', 'text', (column) => column.notNull())
      .addColumn('message', 'text', (column) => column.notNull())
      .execute();
    await schema
      .createIndex('checkpoint_findings_list')
      .on('checkpoint_findings')
      .columns(['found_at', 'id'])
      .execute();
    await schema.createIndex('checkpoint_findings_of_run').on('checkpoint_findings').column('origin').execute();
    await onlyAdd(database, 'checkpoint_list');
  },
};

/** Makes the table append-only by triggers. A database user with the right to drop the triggers can bypass them. */
async function onlyAdd(database: Kysely<unknown>, table: string): Promise<void> {
  const name = sql.table(table);
  if (isPostgres(database)) {
    await sql`create function only_add() returns trigger language plpgsql as
      $$ begin raise exception 'rows of % can only be added', tg_table_name; end $$`.execute(database);
    await sql`create trigger ${sql.id(`${table}_only_add`)} before update or delete on ${name}
      for each row execute function only_add()`.execute(database);
    await sql`create trigger ${sql.id(`${table}_keep_all`)} before truncate on ${name}
      for each statement execute function only_add()`.execute(database);
    return;
  }
  for (const event of ['update', 'delete'])
    await sql`create trigger ${sql.id(`${table}_no_${event}`)} before ${sql.raw(event)} on ${name}
      begin select raise(abort, 'rows of checkpoint_list can only be added'); end`.execute(database);
}
