import { randomBytes } from 'node:crypto';
import { Argument, Command } from 'commander';
import { loadConfig } from '../config/load.js';
import { OperatorError } from '../config/operator-error.js';
import type { Config } from '../config/schema.js';
import type { CommandIo } from './command-io.js';
import { systemClock } from './compose/system-clock.js';

const parts = ['registry', 'services'] as const;
type Part = (typeof parts)[number];

/** Creates the `database` commands, such as `database migrate`. */
export function databaseCommand(io: CommandIo): Command {
  const command = new Command('database').description('migrate or back up a database');
  command
    .command('migrate')
    .description(
      'migrate the database of the registry or the services to the current schema; the commands registry and services ' +
        'also do this when they start',
    )
    .addArgument(new Argument('<part>', 'registry or services').choices(parts))
    .option('--config <file>', 'configuration file')
    .option('--create', 'create the database if it does not exist or has no tables')
    .option(
      '--grant-to <user>',
      'grant this PostgreSQL user the rights that a running registry needs; the user can neither change nor delete events',
    )
    .option('--json', 'print only JSON')
    .action(async (part: Part, options: MigrateOptions) => {
      const { grantTo } = options;
      if (part !== 'registry' && grantTo !== undefined) {
        throw new OperatorError(
          '--grant-to requires the part registry: it grants the rights that the registry needs in its own database.',
        );
      }
      await migrate(part, loadConfig({ file: options.config }), options);
      const granted =
        grantTo === undefined ? '' : ` The user ${grantTo} now has the rights that a running registry needs.`;
      io.out(
        options.json === true
          ? `${JSON.stringify({ part, upToDate: true, ...(grantTo === undefined ? {} : { grantedTo: grantTo }) })}\n`
          : `The database of the ${part} is up to date.${granted}\n`,
      );
    });
  command
    .command('backup')
    .description(
      'copy the SQLite database of the registry or the services to a new file, even while the database is in use',
    )
    .addArgument(new Argument('<part>', 'registry or services').choices(parts))
    .requiredOption('--to <file>', 'the new file, in an existing directory')
    .option('--config <file>', 'configuration file')
    .option('--json', 'print only JSON')
    .action(async (part: Part, options: BackupOptions) => {
      await backUp(part, options.to, loadConfig({ file: options.config }));
      io.out(
        options.json === true
          ? `${JSON.stringify({ part, file: options.to })}\n`
          : `The database of the ${part} is copied to ${options.to}.\n`,
      );
    });
  return command;
}

interface MigrateOptions {
  readonly config?: string;
  readonly create?: true;
  readonly grantTo?: string;
  readonly json?: true;
}

interface BackupOptions {
  readonly to: string;
  readonly config?: string;
  readonly json?: true;
}

/** A database to open. */
interface Target {
  readonly url: string;
  /** The server (registry or services) whose database must already exist. Undefined: a missing database is created. */
  readonly existingOf: Part | undefined;
}

async function migrate(part: Part, config: Config, { create, grantTo }: MigrateOptions): Promise<void> {
  const target = { url: config[part].database.url, existingOf: create === true ? undefined : part };
  if (part === 'services') return (await openServices(target)).destroy();
  const { grantRights } = await import('../registry/database-rights.js');
  const database = await openRegistry(target);
  try {
    if (grantTo !== undefined) await grantRights(database, grantTo);
  } finally {
    await database.destroy();
  }
}

async function backUp(part: Part, target: string, config: Config): Promise<void> {
  const { url } = config[part].database;
  const [scheme, source] = [url.slice(0, url.indexOf(':')), url.slice(url.indexOf(':') + 1)];
  if (scheme !== 'sqlite')
    throw new OperatorError(
      `The database of the ${part} is on PostgreSQL: back it up with pg_dump (docs/operations.md).`,
    );
  if (source === ':memory:')
    throw new OperatorError(`The database of the ${part} is in memory and cannot be backed up.`);
  const { backUpSqlite } = await import('../database/sqlite.js');
  backUpSqlite(source, target);
}

// The two functions below load the SQL modules lazily, because most commands need no SQL.
async function openRegistry(options: Target) {
  const { newId } = await import('../registry/registry-context.js');
  const { openRegistryDatabase } = await import('../registry/registry-database.js');
  return openRegistryDatabase({ ...options, generation: newId('r', systemClock.now(), randomBytes) });
}

async function openServices(options: Target) {
  const { openServicesDatabase } = await import('../services/services-database.js');
  return openServicesDatabase(options);
}
