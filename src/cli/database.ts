import { randomBytes } from 'node:crypto';
import { Argument, Command } from 'commander';
import { loadConfig } from '../config/load.js';
import type { Config } from '../config/schema.js';
import type { CommandIo } from './command-io.js';
import { systemClock } from './system-clock.js';

const parts = ['registry', 'services'] as const;
type Part = (typeof parts)[number];

/** `database migrate`. */
export function databaseCommand(io: CommandIo): Command {
  const command = new Command('database').description('bring a database up to date');
  command
    .command('migrate')
    .description('bring the database of a part up to date, and end; the part does the same when it starts')
    .addArgument(new Argument('<part>', 'whose database').choices(parts))
    .option('--config <file>', 'configuration file')
    .option('--create', 'make a database that is not there, or has no tables yet')
    .option('--json', 'print JSON, and nothing else')
    .action(async (part: Part, options: MigrateOptions) => {
      await migrate(part, loadConfig({ file: options.config }), options.create === true);
      io.out(
        options.json === true
          ? `${JSON.stringify({ part, upToDate: true })}\n`
          : `The database of the ${part} is up to date.\n`,
      );
    });
  return command;
}

interface MigrateOptions {
  readonly config?: string;
  readonly create?: true;
  readonly json?: true;
}

/** Where a database is, and whose it is where it has to be there. */
interface Target {
  readonly url: string;
  readonly existingOf: Part | undefined;
}

async function migrate(part: Part, config: Config, mayCreate: boolean): Promise<void> {
  const { url } = config[part].database;
  const open = part === 'registry' ? openRegistry : openServices;
  await (await open({ url, existingOf: mayCreate ? undefined : part })).destroy();
}

// No other command but those that serve needs SQL, so it is loaded when it is asked for.
async function openRegistry(options: Target) {
  const { newId } = await import('../registry/registry-context.js');
  const { openRegistryDatabase } = await import('../registry/registry-database.js');
  return openRegistryDatabase({ ...options, generation: newId('r', systemClock.now(), randomBytes) });
}

async function openServices(options: Target) {
  const { openServicesDatabase } = await import('../services/services-database.js');
  return openServicesDatabase(options);
}
