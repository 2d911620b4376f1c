import { Command, CommanderError } from 'commander';
import { ConfigError, formatProblems } from '../config/config-error.js';
import { OperatorError } from '../config/operator-error.js';
import { maskKeys } from '../telemetry/mask-keys.js';
import type { CommandIo } from './command-io.js';
import { version } from './version.js';

/** Exit statuses: done, failed, wrong usage or invalid configuration. */
const done = 0;
const failed = 1;
const wrongUsage = 2;

/** Loads a command with all that it imports. */
type LoadCommand = (io: CommandIo) => Promise<Command>;

/** Only the command that is named is loaded. All of them take half a second, which a registry that starts after a crash does not have. */
const commands: ReadonlyMap<string, LoadCommand> = new Map<string, LoadCommand>([
  ['dev', async (io) => (await import('./dev/dev.js')).devCommand(io)],
  ['gateway', async () => (await import('./gateway.js')).gatewayCommand()],
  ['registry', async () => (await import('./registry.js')).registryCommand()],
  ['services', async () => (await import('./services.js')).servicesCommand()],
  ['merchants', async (io) => (await import('./admin/merchants.js')).merchantsCommand(io)],
  ['keys', async (io) => (await import('./admin/keys.js')).keysCommand(io)],
  ['wallets', async (io) => (await import('./admin/wallets/wallets.js')).walletsCommand(io)],
  ['gateways', async (io) => (await import('./admin/gateways.js')).gatewaysCommand(io)],
  ['restores', async (io) => (await import('./admin/restores.js')).restoresCommand(io)],
  ['events', async (io) => (await import('./admin/events.js')).eventsCommand(io)],
  ['audit', async (io) => (await import('./audit/audit.js')).auditCommand(io)],
  ['explain', async (io) => (await import('./explain/explain.js')).explainCommand(io)],
  ['database', async (io) => (await import('./database.js')).databaseCommand(io)],
  ['tor-exits', async (io) => (await import('./tor-exits.js')).torExitsCommand(io)],
  ['config', async (io) => (await import('./config.js')).configCommand(io)],
  ['openapi', async (io) => (await import('./openapi/openapi.js')).openapiCommand(io)],
  [
    'completion',
    async (io) => {
      return (await import('./completion/completion.js')).completionCommand(io, () => createProgram(undefined, io));
    },
  ],
]);

/** All commands are needed where the first argument names none of them: for `--help`, and to suggest the right name. */
async function createProgram(first: string | undefined, io: CommandIo): Promise<Command> {
  const program = new Command('merchant-gateway').description('An API gateway for merchant payments.').version(version);
  const named = first === undefined ? undefined : commands.get(first);
  const loaded = await Promise.all((named === undefined ? [...commands.values()] : [named]).map((load) => load(io)));
  for (const command of loaded) program.addCommand(command);
  return program;
}

/**
 * Runs one command line, and says on `err` what went wrong.
 * @param args without the program's own name
 * @returns the exit status; a server that has started goes on until a signal ends it
 */
export async function run(args: readonly string[], { err, ...others }: CommandIo): Promise<number> {
  const io: CommandIo = {
    ...others,
    // Whatever was given may be a key in the wrong place, and what is said about it is kept and passed on.
    err: (text) => {
      err(maskKeys(text));
    },
  };
  const program = await createProgram(args[0], io);
  for (const command of [program, ...program.commands.flatMap((one) => [one, ...one.commands])]) {
    command.exitOverride().showHelpAfterError('(--help tells what is expected)');
    command.configureOutput({ writeOut: io.out, writeErr: io.err });
  }
  try {
    await program.parseAsync(args, { from: 'user' });
    return done;
  } catch (error) {
    return report(error, io);
  }
}

/** What an operator can mend is one sentence or a list of them; what nobody foresaw is shown whole. */
function report(error: unknown, { err }: CommandIo): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? done : wrongUsage;
  if (error instanceof ConfigError) {
    err(`${formatProblems(error)}\n`);
    return wrongUsage;
  }
  const known = error instanceof OperatorError;
  err(`${known ? error.message : error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  return failed;
}
