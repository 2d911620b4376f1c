import { sql } from 'kysely';
import { isPostgres } from '../../src/database/dialects.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';

/** Removes the triggers that protect the events, as the owner of the database can. */
export async function withoutTriggers(database: RegistryDatabase): Promise<void> {
  if (isPostgres(database)) {
    for (const table of ['events', 'event_chain', 'event_checkpoints'])
      await sql`alter table ${sql.table(table)} disable trigger all`.execute(database);
    return;
  }
  for (const table of ['events', 'event_chain', 'event_checkpoints'])
    for (const event of ['update', 'delete'])
      await sql`drop trigger if exists ${sql.id(`${table}_no_${event}`)}`.execute(database);
}
