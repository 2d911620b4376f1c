/**
 * All imports of Kysely go through this file, which the build bundles with Kysely into one file. Loading Kysely's 279
 * modules separately would take a sixth of a registry's restart time after a crash.
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
