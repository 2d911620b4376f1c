/**
 * The only import of Kysely, which the build bundles into one file. Loading its 279 published modules separately would
 * take a sixth of a registry's restart time after a crash.
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
