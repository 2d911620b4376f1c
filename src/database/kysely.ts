/**
 * The one door to Kysely. The build makes one file of it with all that stands behind: as it is published, Kysely is 279 modules, which
 * take a sixth of the time that a registry needs to start again after a crash.
 */
export {
  DEFAULT_MIGRATION_LOCK_TABLE,
  DEFAULT_MIGRATION_TABLE,
  Kysely,
  Migrator,
  PostgresAdapter,
  PostgresDialect,
  RawNode,
  SelectQueryNode,
  sql,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely';
export type {
  CompiledQuery,
  CreateTableBuilder,
  DatabaseConnection,
  Dialect,
  Driver,
  ExpressionBuilder,
  Generated,
  KyselyPlugin,
  Migration,
  PostgresPool,
  PostgresPoolClient,
  QueryResult,
  RawBuilder,
  Selectable,
  SqlBool,
  Transaction,
} from 'kysely';
