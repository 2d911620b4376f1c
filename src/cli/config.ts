import { Command, Option } from 'commander';
import { parse, stringify } from 'yaml';
import { documentConfig } from '../config/document.js';
import { ConfigError } from '../config/config-error.js';
import type { Problem } from '../config/config-error.js';
import { loadConfig } from '../config/load.js';
import { configNotes } from '../config/config-notes.js';
import { redactConfig } from '../config/redact.js';
import { serverCommands, startProblems } from '../config/start-problems.js';
import type { ServerCommand } from '../config/start-problems.js';
import type { CommandIo } from './command-io.js';

type Environment = Readonly<Record<string, string | undefined>>;

interface CheckOptions {
  readonly config?: string;
  readonly for?: ServerCommand;
  readonly json?: true;
}

/** `config check` and `config defaults`. An invalid configuration is thrown as ConfigError. */
export function configCommand(io: CommandIo, env: Environment = process.env): Command {
  const command = new Command('config').description('check a configuration file, or print the documented default');
  command
    .command('check')
    .description('validate, and print the effective configuration with secrets masked; opens no file that it names')
    .option('--config <file>', 'configuration file; without one, the defaults')
    .addOption(
      new Option('--for <command>', 'what would keep this one from starting is an error').choices(serverCommands),
    )
    .option('--json', 'print JSON in place of YAML')
    .action((options: CheckOptions) => {
      check(options, io, env);
    });
  command
    .command('defaults')
    .description('print every option with its description and its default, as a configuration file')
    .option('--json', 'print the defaults as JSON, without the descriptions')
    .action(({ json }: { readonly json?: true }) => {
      const document = documentConfig();
      io.out(json === true ? `${JSON.stringify(parse(document), null, 2)}\n` : document);
    });
  return command;
}

function check({ config: file, for: command, json }: CheckOptions, { out, err }: CommandIo, env: Environment): void {
  const config = loadConfig({ file, env });
  const problems = startProblems(command ?? 'gateway', config);
  if (command !== undefined && problems.length > 0) throw new ConfigError(problems, file ?? null);
  const shown = redactConfig(config);
  out(json === true ? `${JSON.stringify(shown, null, 2)}\n` : escapeVariables(stringify(shown, { lineWidth: 0 })));
  // The file may be for another command, so this is no failure.
  if (problems.length > 0) err(`Valid, but the gateway command would not start with it:\n${listOf(problems)}`);
  const notes = configNotes(command ?? 'gateway', config);
  if (notes.length > 0) err(`Note:\n${listOf(notes)}`);
}

function listOf(problems: readonly Problem[]): string {
  return problems.map(({ path, message }) => `  ${path}: ${message}\n`).join('');
}

/** What is printed can be loaded again: `${` in a value is no variable. */
function escapeVariables(yaml: string): string {
  return yaml.replaceAll('${', '$$${');
}
