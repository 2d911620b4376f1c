import { isPostgres } from '../../database/dialects.js';
import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * A PostgreSQL function that deletes old events with the rights of the tables' owner. So the registry's own user needs
 * no right to delete or change events.
 */
export const eventRights: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    if (!isPostgres(database)) return;
    const { rows } = await sql<{ schema: string }>`select current_schema() as schema`.execute(database);
    const schema = sql.id(rows[0]?.schema ?? 'public');
    // Puts pg_temp last in the search path. Otherwise a caller could create temporary tables with the names of the
    // registry's tables, and the function would use these instead.
    await sql`create function prune_events(doomed bigint[], last_position bigint, last_hash text, moment bigint, note text)
      returns void language plpgsql security definer set search_path = ${schema}, pg_temp as $$
      begin
        if last_position > 0 and not exists (
          select from event_chain where position = last_position and hash = last_hash
        ) then raise exception 'the chain of events has no such position'; end if;
        update event_tail set pruned_position = last_position, pruned_hash = last_hash, pruned_at = moment, pruned_note = note
          where id = 1 and pruned_position < last_position;
        delete from events where seq = any(doomed);
        delete from event_chain where seq = any(doomed);
        delete from event_checkpoints where position < last_position;
      end $$`.execute(database);
    await sql`revoke all on function prune_events from public`.execute(database);
  },
};
