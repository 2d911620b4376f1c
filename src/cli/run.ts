import { Command, CommanderError } from 'commander';
import { ConfigError, formatProblems } from '../config/config-error.js';
import { OperatorError } from '../config/operator-error.js';
import { cutKeysInLines } from '../telemetry/mask-keys.js';
import { WrongUsage } from './admin/peer.js';
import type { CommandIo } from './command-io.js';
import { Interrupted } from './interruption.js';
import { version } from './version.js';

/** Exit codes, besides that of `Interrupted`. `wrongUsage` is also the code for an invalid configuration. */
const done = 0;
const failed = 1;
const wrongUsage = 2;

/** Loads a command and the modules that it imports. */
type LoadCommand = (io: CommandIo) => Promise<Command>;

/**
 * Commands by name. Only the named command is loaded. Loading all takes half a second, which is too long for a registry
 * that restarts after a crash.
 */
const commands: ReadonlyMap<string, LoadCommand> = new Map<string, LoadCommand>([
  ['dev', async (io) => (await import('./dev/dev.js')).devCommand(io)],
  ['gateway', async () => (await import('./gateway.js')).gatewayCommand()],
  ['registry', async () => (await import('./registry.js')).registryCommand()],
  ['services', async () => (await import('./services.js')).servicesCommand()],
  ['login', async (io) => (await import('./admin/session/sign-in.js')).loginCommand(io)],
  ['logout', async (io) => (await import('./admin/session/sign-in.js')).logoutCommand(io)],
  ['whoami', async (io) => (await import('./admin/session/sign-in.js')).whoamiCommand(io)],
  ['merchants', async (io) => (await import('./admin/merchants.js')).merchantsCommand(io)],
  ['keys', async (io) => (await import('./admin/keys.js')).keysCommand(io)],
  ['find', async (io) => (await import('./admin/find.js')).findCommand(io)],
  ['usage', async (io) => (await import('./admin/usage/usage.js')).usageCommand(io)],
  ['refusals', async (io) => (await import('./admin/usage/refusals.js')).refusalsCommand(io)],
  ['wallets', async (io) => (await import('./admin/wallets/wallets.js')).walletsCommand(io)],
  ['gateways', async (io) => (await import('./admin/gateways.js')).gatewaysCommand(io)],
  ['restores', async (io) => (await import('./admin/restores.js')).restoresCommand(io)],
  ['instance-keys', async (io) => (await import('./admin/checkpoints/instance-keys.js')).instanceKeysCommand(io)],
  ['checkpoints', async (io) => (await import('./admin/checkpoints/checkpoints.js')).checkpointsCommand(io)],
  [
    'administrators',
    async (io) => (await import('./admin/administrators/administrators.js')).administratorsCommand(io),
  ],
  ['tokens', async (io) => (await import('./admin/administrators/tokens.js')).tokensCommand(io)],
  ['console', async (io) => (await import('./admin/administrators/console.js')).consoleCommand(io)],
  ['sessions', async (io) => (await import('./admin/administrators/console.js')).sessionsCommand(io)],
  ['members', async (io) => (await import('./admin/administrators/members.js')).membersCommand(io)],
  ['roles', async (io) => (await import('./admin/administrators/administrators.js')).rolesCommand(io)],
  ['approvals', async (io) => (await import('./admin/approvals/approvals.js')).approvalsCommand(io)],
  ['unusual', async (io) => (await import('./admin/unusual/unusual.js')).unusualCommand(io)],
  ['events', async (io) => (await import('./admin/events/events.js')).eventsCommand(io)],
  ['audit', async (io) => (await import('./audit/audit.js')).auditCommand(io)],
  ['explain', async (io) => (await import('./explain/explain.js')).explainCommand(io)],
  ['codes', async (io) => (await import('./codes.js')).codesCommand(io)],
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

/**
 * Creates the program. If the first argument is neither a command nor the version option, all commands are loaded, for
 * `--help` and to suggest the right name.
 */
async function createProgram(first: string | undefined, io: CommandIo): Promise<Command> {
  const program = new Command('merchant-gateway').description('An API gateway for merchant payments.').version(version);
  if (first === '--version' || first === '-V') return program;
  const named = first === undefined ? undefined : commands.get(first);
  const loaded = await Promise.all((named === undefined ? [...commands.values()] : [named]).map((load) => load(io)));
  for (const command of loaded) program.addCommand(command);
  return program;
}

/**
 * Runs one command line, and prints errors to `err`.
 * @param args the arguments without the program name
 * @returns the exit code; a started server runs on until a signal
 */
export async function run(args: readonly string[], { err, ...others }: CommandIo): Promise<number> {
  const io: CommandIo = {
    ...others,
    // Error messages end up in logs, and an argument could be a misplaced API key, so mask keys.
    err: (text) => {
      err(cutKeysInLines(text));
    },
  };
  const program = await createProgram(args[0], io);
  for (const command of [program, ...program.commands.flatMap((one) => [one, ...one.commands])]) {
    command.exitOverride().showHelpAfterError('(see --help)');
    command.configureOutput({ writeOut: io.out, writeErr: io.err });
  }
  try {
    await program.parseAsync(args, { from: 'user' });
    return done;
  } catch (error) {
    return report(error, io);
  }
}

/**
 * Prints an error and returns the exit code. An expected error is printed as a sentence or a list, an unexpected one
 * with its stack trace.
 */
function report(error: unknown, { err }: CommandIo): number {
  if (error instanceof CommanderError) return error.exitCode === 0 ? done : wrongUsage;
  if (error instanceof WrongUsage) {
    err(`error: ${error.message}\n(see --help)\n`);
    return wrongUsage;
  }
  if (error instanceof ConfigError) {
    err(`${formatProblems(error)}\n`);
    return wrongUsage;
  }
  const known = error instanceof OperatorError;
  err(`${known ? error.message : error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  return error instanceof Interrupted ? error.status : failed;
}
