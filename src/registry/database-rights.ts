import { DatabaseError } from '../database/database-error.js';
import { isPostgres } from '../database/dialects.js';
import { sql } from '../database/kysely.js';
import type { RegistryDatabase } from './registry-database.js';

/**
 * The tables of the audit trail. The database user of a running registry is allowed to read them and to insert rows,
 * but not to change rows. This user can delete rows only with the SQL function `prune_events`.
 */
const trail = ['events', 'event_chain', 'event_checkpoints'] as const;
const readOnly = ['kysely_migration', 'kysely_migration_lock'] as const;

/**
 * Gives a PostgreSQL user the rights that a running registry needs, and revokes all other rights on the tables. The
 * user can read all tables and change most of them. It can change neither events nor the schema, and can delete events
 * only with the function `prune_events`. Open the database as the owner of the tables.
 * @throws DatabaseError for SQLite, for an unknown user, and for a user that could change events anyway, such as a
 * superuser
 */
export async function grantRights(database: RegistryDatabase, user: string): Promise<void> {
  if (!isPostgres(database)) {
    throw new DatabaseError('Only PostgreSQL has users: --grant-to needs a database on PostgreSQL.');
  }
  const { rows: tables } = await sql<{ name: string; schema: string }>`
    select tablename as name, schemaname as schema from pg_tables
    where schemaname = current_schema() and tableowner = current_user`.execute(database);
  const all = tables.map(({ name }) => name);
  const limited: readonly string[] = [...trail, ...readOnly, 'event_tail'];
  const changed = all.filter((name) => !limited.includes(name));
  const [to, schema] = [sql.id(user), sql.id(tables[0]?.schema ?? 'public')];
  await database.transaction().execute(async (transaction) => {
    await requireOther(transaction, user);
    for (const statement of [
      sql`grant usage on schema ${schema} to ${to}`,
      sql`revoke all on ${listOf(all)} from ${to}`,
      sql`grant select on ${listOf(all)} to ${to}`,
      sql`grant insert, update, delete on ${listOf(changed)} to ${to}`,
      sql`grant insert on ${listOf(trail)} to ${to}`,
      // These columns of `event_tail` describe the last event of the hash chain, so the user updates them for each new
      // event. Only the function `prune_events` sets the other columns. This function runs with the rights of its
      // owner, so the user needs no right to update the other columns.
      sql`grant update (id, position, hash) on event_tail to ${to}`,
      sql`grant execute on function prune_events to ${to}`,
    ])
      await statement.execute(transaction);
    await requireLimits(transaction, user);
  });
}

function listOf(tables: readonly string[]) {
  return sql.join(tables.map((name) => sql.table(name)));
}

async function requireOther(database: RegistryDatabase, user: string): Promise<void> {
  const { rows } = await sql<{ owns: boolean }>`
    select rolsuper or rolcreaterole or pg_has_role(oid, current_user, 'member') as owns
    from pg_roles where rolname = ${user}`.execute(database);
  const [found] = rows;
  if (found === undefined) {
    throw new DatabaseError(`PostgreSQL has no user ${user}: create it first, for example with createuser.`);
  }
  if (found.owns) {
    throw new DatabaseError(
      `The user ${user} could change events, because it is a superuser, may create roles, or owns the tables. Name another user, and let the registry connect as that user.`,
    );
  }
}

/**
 * Checks that no right except those of `grantRights` lets the user change the audit trail. For example, a role such as
 * pg_write_all_data or a grant to all users could give such a right.
 * @throws DatabaseError
 */
async function requireLimits(database: RegistryDatabase, user: string): Promise<void> {
  for (const table of [...trail, 'event_tail']) {
    const { rows } = await sql<{ excess: boolean }>`
      select has_table_privilege(${user}, ${table}, 'update, delete, truncate, trigger') as excess`.execute(database);
    if (rows[0]?.excess === true) {
      throw new DatabaseError(
        `The user ${user} can change ${table}, because it has this right through a role or through a grant to PUBLIC. Revoke the right, or name another user.`,
      );
    }
  }
}
