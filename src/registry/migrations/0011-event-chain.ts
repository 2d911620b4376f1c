import { isPostgres } from '../../database/dialects.js';
import { sql, type Kysely, type Migration } from '../../database/kysely.js';

/**
 * Tables and triggers for the hash chain of events. Each hash covers the event and the previous hash; the newest hash
 * is signed. Events of earlier releases are not in the chain. Triggers reject updates of all events. They also reject
 * deletions of chained events after `pruned_position`, the position up to which the registry deletes old events.
 */
export const eventChain: Migration = {
  async up(database: Kysely<unknown>): Promise<void> {
    const { schema } = database;
    await schema
      .createTable('event_chain')
      .addColumn('position', 'bigint', (column) => column.primaryKey())
      .addColumn('seq', 'bigint', (column) => column.notNull().unique())
      .addColumn('hash', 'text', (column) => column.notNull())
      .execute();
    await schema
      .createTable('event_tail')
      .addColumn('id', 'integer', (column) => column.primaryKey().check(sql`id = 1`))
      .addColumn('position', 'bigint', (column) => column.notNull())
      .addColumn('hash', 'text', (column) => column.notNull())
      .addColumn('unchained_seq', 'bigint', (column) => column.notNull())
      .addColumn('pruned_position', 'bigint', (column) => column.notNull())
      .addColumn('pruned_hash', 'text', (column) => column.notNull())
      .addColumn('pruned_at', 'bigint')
      .addColumn('pruned_note', 'text')
      .execute();
    await schema
      .createTable('event_checkpoints')
      .addColumn('position', 'bigint', (column) => column.primaryKey())
      .addColumn('signed_at', 'bigint', (column) => column.notNull())
      .addColumn('note', 'text', (column) => column.notNull())
      .execute();
    const startHash = '0'.repeat(64);
    await sql`insert into event_tail (id, position, hash, unchained_seq, pruned_position, pruned_hash)
      values (1, 0, ${startHash}, (select coalesce(max(seq), 0) from events), 0, ${startHash})`.execute(database);
    await (isPostgres(database) ? protectInPostgres(database) : protectInSqlite(database));
  },
};

async function protectInPostgres(database: Kysely<unknown>): Promise<void> {
  await sql`create function keep_events() returns trigger language plpgsql as $$
    begin
      if tg_op = 'DELETE' and not exists (
        select from event_chain, event_tail where event_chain.seq = old.seq and event_chain.position > pruned_position
      ) then return old; end if;
      raise exception 'events can only be added';
    end $$`.execute(database);
  await sql`create function keep_event_chain() returns trigger language plpgsql as $$
    begin
      if tg_op = 'DELETE' and old.position <= (select pruned_position from event_tail) then return old; end if;
      raise exception 'the chain of events can only grow';
    end $$`.execute(database);
  await sql`create function keep_all_events() returns trigger language plpgsql as
    $$ begin raise exception 'events can only be added'; end $$`.execute(database);
  for (const [table, keep] of [
    ['events', 'keep_events'],
    ['event_chain', 'keep_event_chain'],
    ['event_checkpoints', 'keep_event_chain'],
  ] as const) {
    await sql`create trigger ${sql.id(`${table}_only_add`)} before update or delete on ${sql.table(table)}
      for each row execute function ${sql.id(keep)}()`.execute(database);
    await sql`create trigger ${sql.id(`${table}_keep_all`)} before truncate on ${sql.table(table)}
      for each statement execute function keep_all_events()`.execute(database);
  }
}

async function protectInSqlite(database: Kysely<unknown>): Promise<void> {
  await sql`create trigger events_no_update before update on events
    begin select raise(abort, 'events can only be added'); end`.execute(database);
  await sql`create trigger events_no_delete before delete on events
    when exists (select 1 from event_chain, event_tail
      where event_chain.seq = old.seq and event_chain.position > event_tail.pruned_position)
    begin select raise(abort, 'events can only be added'); end`.execute(database);
  for (const table of ['event_chain', 'event_checkpoints']) {
    await sql`create trigger ${sql.id(`${table}_no_update`)} before update on ${sql.table(table)}
      begin select raise(abort, 'the chain of events can only grow'); end`.execute(database);
    await sql`create trigger ${sql.id(`${table}_no_delete`)} before delete on ${sql.table(table)}
      when old.position > (select pruned_position from event_tail)
      begin select raise(abort, 'the chain of events can only grow'); end`.execute(database);
  }
}
