import { randomBytes } from 'node:crypto';
import { Argument, Command } from 'commander';
import { loadConfig } from '../config/load.js';
import type { Config } from '../config/schema.js';
import { newId } from '../registry/registry-context.js';
import { openRegistryDatabase } from '../registry/registry-database.js';
import { openServicesDatabase } from '../services/services-database.js';
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
    .action((part: Part, options: { readonly config?: string }) =>
      migrate(part, loadConfig({ file: options.config }), io),
    );
  return command;
}

async function migrate(part: Part, config: Config, { out }: CommandIo): Promise<void> {
  const { url } = config[part].database;
  const database =
    part === 'registry'
      ? await openRegistryDatabase({ url, generation: newId('r', systemClock.now(), randomBytes) })
      : await openServicesDatabase({ url });
  await database.destroy();
  out(`The database of the ${part} is up to date.\n`);
}
