import { isPostgres } from '../../database/dialects.js';
import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * A column for the time of the last status change of a key or merchant. Null if this time is not known. If the status
 * of an existing record denies requests, the time is taken from the newest event that set this status.
 */
export const statusChanges: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    for (const table of ['api_keys', 'merchants'])
      await database.schema.alterTable(table).addColumn('status_changed_at', 'bigint').execute();
    await takeFromEvents(database, 'api_keys', sql`events.key_id = api_keys.key_id`, [
      ...['key.revoked', 'key.reset', 'key.held-back', 'key.lifted'],
    ]);
    await takeFromEvents(database, 'merchants', sql`events.merchant_id = merchants.id and events.key_id is null`, [
      ...['merchant.created', 'merchant.changed', 'merchant.held-back', 'merchant.lifted'],
    ]);
    await dateOthersChanges(database);
  },
};

/**
 * Sets the time for records that are not ACTIVE, from their newest event that changed the status. An event changed the
 * status if `after` contains the current status and `before` does not.
 */
async function takeFromEvents(
  database: Kysely<unknown>,
  table: string,
  isAbout: ReturnType<typeof sql>,
  actions: readonly string[],
): Promise<void> {
  const status = sql`('"status":"' || ${sql.table(table)}.status || '"')`;
  await sql`update ${sql.table(table)} set status_changed_at = (
    select events.at from events where ${isAbout} and action in (${sql.join(actions.map((action) => sql.lit(action)))})
      and replace("after", ${status}, '') <> "after"
      and ("before" is null or replace("before", ${status}, '') = "before")
    order by events.seq desc limit 1
  ) where status <> 'ACTIVE'`.execute(database);
}

/**
 * Adds triggers that set the time of a status change. The previous release can run at the same time, and does not set
 * the new column. Without triggers, a key that the previous release revokes would keep the time of its earlier status
 * change.
 */
async function dateOthersChanges(database: Kysely<unknown>): Promise<void> {
  if (isPostgres(database)) {
    await sql`create function date_status() returns trigger language plpgsql as
      $$ begin new.status_changed_at := new.updated_at; return new; end $$`.execute(database);
    for (const table of ['api_keys', 'merchants'])
      await sql`create trigger ${sql.id(`${table}_date_status`)} before update of status on ${sql.table(table)}
        for each row when (new.status <> old.status and new.status_changed_at is not distinct from old.status_changed_at)
        execute function date_status()`.execute(database);
    return;
  }
  for (const table of ['api_keys', 'merchants'])
    await sql`create trigger ${sql.id(`${table}_date_status`)} after update of status on ${sql.table(table)}
      when new.status <> old.status and new.status_changed_at is old.status_changed_at
      begin update ${sql.table(table)} set status_changed_at = new.updated_at where rowid = new.rowid; end`.execute(
      database,
    );
}
