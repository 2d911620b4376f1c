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
    .option('--json', 'print JSON, and nothing else')
    .action(async (part: Part, { config: file, json }: { readonly config?: string; readonly json?: true }) => {
      await migrate(part, loadConfig({ file }));
      io.out(
        json === true
          ? `${JSON.stringify({ part, upToDate: true })}\n`
          : `The database of the ${part} is up to date.\n`,
      );
    });
  return command;
}

async function migrate(part: Part, config: Config): Promise<void> {
  const { url } = config[part].database;
  const open = part === 'registry' ? openRegistry : openServices;
  await (await open(url)).destroy();
}

// No other command but those that serve needs SQL, so it is loaded when it is asked for.
async function openRegistry(url: string) {
  const { newId } = await import('../registry/registry-context.js');
  const { openRegistryDatabase } = await import('../registry/registry-database.js');
  return openRegistryDatabase({ url, generation: newId('r', systemClock.now(), randomBytes) });
}

async function openServices(url: string) {
  const { openServicesDatabase } = await import('../services/services-database.js');
  return openServicesDatabase({ url });
}
