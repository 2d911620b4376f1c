import { Command, Option } from 'commander';
import { parse, stringify } from 'yaml';
import { ConfigError, type Problem } from '../config/config-error.js';
import { configNotes, type ServerCommand, serverCommands, startProblems } from '../config/config-notes.js';
import { documentConfig } from '../config/document.js';
import { loadConfig } from '../config/load.js';
import { mebibyte, type MemoryPlan, planMemory } from '../config/memory-plan.js';
import { OperatorError } from '../config/operator-error.js';
import { redactConfig } from '../config/redact.js';
import { cutKeysIn } from '../telemetry/mask-keys.js';
import type { Config } from '../config/schema.js';
import type { CommandIo } from './command-io.js';

type Environment = Readonly<Record<string, string | undefined>>;

interface CheckOptions {
  readonly config?: string;
  readonly for?: ServerCommand;
  readonly json?: true;
  readonly connect?: true;
}

/**
 * Creates the commands `config check` and `config defaults`. `check` throws ConfigError for an invalid configuration.
 */
export function configCommand(io: CommandIo, env: Environment = process.env): Command {
  const command = new Command('config').description('check a configuration file, or print the documented defaults');
  command
    .command('check')
    .description(
      'validate a configuration file and print the effective configuration with secrets masked; ' +
        'the files that the configuration names are opened only with --connect',
    )
    .option('--config <file>', 'configuration file (default: built-in defaults)')
    .addOption(
      new Option('--for <command>', 'also fail if the given command would not start with the configuration').choices(
        serverCommands,
      ),
    )
    .option('--connect', 'with --for: open all files and test all connections of that command')
    .option('--json', 'print JSON instead of YAML')
    .action((options: CheckOptions) => {
      const config = check(options, io, env);
      return options.connect === true ? connect(options, config, io) : undefined;
    });
  command
    .command('defaults')
    .description('print every option with its description and default, as a configuration file')
    .option('--json', 'print the defaults as JSON, without descriptions')
    .action(({ json }: { readonly json?: true }) => {
      const document = documentConfig();
      io.out(json === true ? `${JSON.stringify(parse(document), null, 2)}\n` : document);
    });
  return command;
}

function check(
  { config: file, for: command, json, connect }: CheckOptions,
  { out, err }: CommandIo,
  env: Environment,
): Config {
  if (connect === true && command === undefined)
    throw new ConfigError(
      [{ path: '--connect', message: `requires --for with one of ${serverCommands.join(', ')}` }],
      'The command line',
    );
  const config = loadConfig({ file, env });
  const ofCommand = command === undefined ? [] : startProblems(command, config);
  if (ofCommand.length > 0) throw new ConfigError(ofCommand, file ?? null);
  const shown = cutKeysIn(redactConfig(config));
  const memoryPlan = command === undefined || command === 'gateway' ? planMemory(config) : null;
  if (json === true)
    out(`${JSON.stringify(memoryPlan === null ? shown : { ...(shown as object), memoryPlan }, null, 2)}\n`);
  else {
    const comments = [memoryPlan === null ? '' : planComment(memoryPlan), unusualComment(config, command)];
    out(escapeVariables(stringify(shown, { lineWidth: 0 })) + comments.join(''));
  }
  // Without --for, print which commands would not start with the file. Do not fail, because the file could be meant for
  // another command.
  for (const other of command === undefined ? serverCommands : []) {
    const problems = startProblems(other, config);
    if (problems.length > 0)
      err(`The configuration is valid, but the ${other} command would not start with it:\n${listOf(problems)}`);
  }
  const notes = configNotes(command ?? 'gateway', config);
  if (notes.length > 0) err(`Note:\n${listOf(notes)}`);
  return config;
}

/**
 * Returns a YAML comment that lists the active rules about unusual use that require a GeoIP database. Without the
 * database, gateways do not know the country and network of an address, so these rules report nothing. Returns an empty
 * text if the database is configured, no such rule is active, or a command other than `registry` is given.
 */
function unusualComment({ geoip, registry: { unusual } }: Config, command?: ServerCommand): string {
  const off = (['new-country', 'new-network'] as const).filter((rule) => !unusual.off.includes(rule));
  const concerns = command === undefined || command === 'registry';
  if (!concerns || !unusual.enabled || off.length === 0 || geoip.countryFile !== null) return '';
  return `# registry.unusual: without geoip.countryFile, these rules cannot report unusual use: ${off.join(', ')}.\n`;
}

/**
 * Checks the files and connections that the command would use, and prints the warnings.
 * @throws OperatorError with the findings that would keep the command from working
 */
async function connect({ for: command = 'gateway' }: CheckOptions, config: Config, { err }: CommandIo): Promise<void> {
  const { checkConnections } = await import('./check/connect.js');
  const findings = await checkConnections(command, config);
  const listOfSeverity = (wanted: string): string =>
    listOf(
      findings.filter(({ severity }) => severity === wanted).map(({ option, message }) => ({ path: option, message })),
    );
  const [errors, warnings] = [listOfSeverity('error'), listOfSeverity('warning')];
  if (warnings !== '') err(`Warning:\n${warnings}`);
  if (errors !== '') throw new OperatorError(`The ${command} would not work:\n${errors.trimEnd()}`);
  err(`The check found no errors in the files and connections of the ${command}.\n`);
}

function listOf(problems: readonly Problem[]): string {
  return problems.map(({ path, message }) => `  ${path}: ${message}\n`).join('');
}

/** Formats the memory plan as YAML comments, so that the output can be loaded as a configuration. */
function planComment(plan: MemoryPlan): string {
  const { connections, maxEntries, unknownMaxEntries, maxSources } = plan.allows;
  const inMebibytes = (bytes: number): string => `${Math.floor(bytes / mebibyte)} MiB`;
  const lines = [
    `A gateway process may use ${inMebibytes(plan.memory)} of memory (${plan.source}).`,
    `Planned memory: the process itself ${inMebibytes(plan.process)}, caches ${inMebibytes(plan.caches)}, ` +
      `idle connections ${inMebibytes(plan.connections)}, queued bodies ${inMebibytes(plan.bufferedBodyBytes)}.`,
    `The process will use these limits: limits.connections ${connections}, keyStore.cache.maxEntries ${maxEntries}, ` +
      `keyStore.cache.unknownMaxEntries ${unknownMaxEntries}, throttle.maxSources ${maxSources}.`,
  ];
  return lines.map((text) => `# ${text}\n`).join('');
}

/** Escapes `${` in values, so that loading the output as a configuration substitutes nothing. */
function escapeVariables(yaml: string): string {
  return yaml.replaceAll('${', '$$${');
}
