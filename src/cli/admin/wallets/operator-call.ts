import { type Command, Option } from 'commander';
import { actorNamed } from '../actor.js';
import { type AdminCall, type AdminEdge, printers } from '../admin-call.js';
import { AdminClient } from '../admin-client.js';
import { WrongUsage } from '../peer.js';
import { operatorAccess, type OperatorAccessOptions, registryAccess } from './operator-access.js';

/** The client, options and output functions of one operators' command. */
export interface OperatorCall<Options> extends Omit<AdminCall<Options>, 'showChange'> {
  /** Creates a client of the registry that uses the administrator's token. @throws WrongUsage if no token is given */
  readonly openRegistry: () => Promise<AdminClient>;
}

/** Options that all operators' commands have. */
export interface OperatorOptions extends OperatorAccessOptions {
  readonly actor?: string;
  readonly reason?: string;
  readonly json?: true;
  readonly token?: string | true;
}

/** Adds the common options of operators' commands. When the command runs, `act` gets a client of the operators' API. */
export function operate<Options extends object>(
  command: Command,
  { io, env }: AdminEdge,
  act: (call: OperatorCall<Options>) => Promise<void>,
): void {
  // A command that moves money has its own `--reason`, which the ledger stores.
  const isMovement = command.options.some(({ long }) => long === '--reason');
  if (!isMovement) command.option('--reason <text>', 'reason for the change; the registry may require it');
  command
    .option('--services <url>', "address of the operators' API (or MERCHANT_GATEWAY_SERVICES)")
    .option('--registry <url>', 'address of the admin API of the registry (or MERCHANT_GATEWAY_REGISTRY)')
    .option(
      '--registry-token-file <file>',
      'file with your token for the registry (or set MERCHANT_GATEWAY_TOKEN to the token, or sign in with "merchant-gateway login")',
    )
    .option(
      '--token-file <file>',
      "file with the operators' shared token (or set MERCHANT_GATEWAY_SERVICES_TOKEN to the token)",
    )
    .option('--ca-file <file>', 'PEM file with the CA certificate for an https address (or MERCHANT_GATEWAY_CA_FILE)')
    .option(
      '--config <file>',
      'configuration file that has the addresses and token files in its sections services.operators and registry',
    )
    .option(
      '--actor <name>',
      'your name in the ledger if you use the shared token; it is not verified (default: your user name on this machine)',
    )
    .option('--json', 'print only the data of the response, as JSON')
    .addOption(new Option('--token [token]').hideHelp())
    .addHelpText(
      'after',
      '\nAmounts are in minor units, e.g. kobo or cents. Exit status: 0 done, 1 failed, 2 wrong usage.',
    )
    .action(async () => {
      const options = command.opts<Options & OperatorOptions>();
      if (options.token !== undefined)
        throw new WrongUsage(
          'do not give a token as an argument, because other users of this machine can see arguments: use --token-file',
        );
      const actor = actorNamed(options.actor);
      const given = options.reason ?? null;
      const access = await operatorAccess(options, env, given);
      const client = new AdminClient({ ...access, actor, reason: isMovement ? null : given });
      const { show } = printers(io, options.json === true);
      const openRegistry = async () =>
        new AdminClient({ ...(await registryAccess(options, env)), actor, reason: given });
      await act({ client, options, args: command.args, show, openRegistry });
    });
}
