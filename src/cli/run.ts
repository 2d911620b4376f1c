import { Command, CommanderError } from 'commander';
import { ConfigError, formatProblems } from '../config/config-error.js';
import { OperatorError } from '../config/operator-error.js';
import { maskKeys } from '../telemetry/mask-keys.js';
import { eventsCommand } from './admin/events.js';
import { gatewaysCommand } from './admin/gateways.js';
import { keysCommand } from './admin/keys.js';
import { merchantsCommand } from './admin/merchants.js';
import { restoresCommand } from './admin/restores.js';
import { auditCommand } from './audit/audit.js';
import { fingerprintCommand } from './audit/fingerprint.js';
import type { CommandIo } from './command-io.js';
import { configCommand } from './config.js';
import { databaseCommand } from './database.js';
import { devCommand } from './dev.js';
import { explainCommand } from './explain.js';
import { gatewayCommand } from './gateway.js';
import { openapiCommand } from './openapi.js';
import { registryCommand } from './registry.js';
import { servicesCommand } from './services.js';
import { torExitsCommand } from './tor-exits.js';
import { version } from './version.js';

/** Exit statuses: done, failed, wrong usage or invalid configuration. */
const done = 0;
const failed = 1;
const wrongUsage = 2;

/** The table of commands. */
function createProgram(io: CommandIo): Command {
  return new Command('merchant-gateway')
    .description('An API gateway for merchant payments.')
    .version(version)
    .addCommand(devCommand(io))
    .addCommand(gatewayCommand())
    .addCommand(registryCommand())
    .addCommand(servicesCommand())
    .addCommand(merchantsCommand(io))
    .addCommand(keysCommand(io).addCommand(fingerprintCommand(io)))
    .addCommand(gatewaysCommand(io))
    .addCommand(restoresCommand(io))
    .addCommand(eventsCommand(io))
    .addCommand(auditCommand(io))
    .addCommand(explainCommand(io))
    .addCommand(databaseCommand(io))
    .addCommand(torExitsCommand(io))
    .addCommand(configCommand(io))
    .addCommand(openapiCommand(io));
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
  const program = createProgram(io);
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
