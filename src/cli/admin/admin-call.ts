import { type Command, Option } from 'commander';
import { counted } from '../../audit/finding.js';
import { OperatorError } from '../../config/operator-error.js';
import type { Propagation } from '../../registry/propagation.js';
import type { CommandIo } from '../command-io.js';
import { accessOf, type AccessOptions } from './access.js';
import { actorNamed } from './actor.js';
import { AdminClient } from './admin-client.js';
import { type Environment, registryPeer, WrongUsage } from './peer.js';
import { printable, printableJson } from './printable.js';

/** The client, options and output functions of one administration command. */
export interface AdminCall<Options> {
  readonly client: AdminClient;
  readonly options: Options;
  readonly args: readonly string[];
  /** Prints the data of a response as JSON with `--json`, otherwise the given lines. */
  readonly show: (data: unknown, lines: readonly string[]) => void;
  /**
   * Prints a change. If the change is in force on all gateways, also prints how many gateways confirmed it.
   * @throws OperatorError, so that a script fails, if the change is not in force on all gateways or this is unknown
   */
  readonly showChange: (data: { readonly propagation: Propagation }, lines: readonly string[]) => void;
}

/** Output streams and environment variables of the administration commands. */
export interface AdminEdge {
  readonly io: CommandIo;
  readonly env: Environment;
}

type CallOptions = Omit<AccessOptions, 'address'> & {
  readonly registry?: string;
  readonly actor?: string;
  readonly reason?: string;
  readonly json?: true;
  readonly token?: string | true;
};

/** Adds the common administration options to a command. When the command runs, `act` gets a client of the registry. */
export function administer<Options extends object>(
  command: Command,
  { io, env }: AdminEdge,
  act: (call: AdminCall<Options>) => Promise<void>,
): void {
  command
    .option('--registry <url>', 'address of the admin API (or MERCHANT_GATEWAY_REGISTRY)')
    .option('--token-file <file>', 'file with your token (or set MERCHANT_GATEWAY_TOKEN to the token)')
    .option('--ca-file <file>', 'PEM file with the CA certificate for an https address (or MERCHANT_GATEWAY_CA_FILE)')
    .option(
      '--config <file>',
      'configuration file from which to take registry.listen (the address) and registry.tokenFile',
    )
    .option('--reason <text>', 'reason for the request, recorded in the audit trail; the registry may require it')
    .option(
      '--actor <name>',
      'your name in the audit trail if you use the shared token; it is not verified (default: your user name on this machine)',
    )
    .option('--json', 'print only the data of the response, as JSON')
    .addOption(new Option('--token [token]').hideHelp())
    .addHelpText(
      'after',
      '\nExit status: 0 success (a change is in force on every gateway), 1 failure (or a change is not yet in force on every gateway), 2 wrong usage.',
    )
    .action(async () => {
      const options = command.opts<Options & CallOptions>();
      if (options.token !== undefined)
        throw new WrongUsage(
          'a token is never an argument, because other users of this machine can see arguments: use --token-file',
        );
      const actor = actorNamed(options.actor);
      const client = new AdminClient({
        ...(await accessOf({ ...options, address: options.registry }, env, registryPeer)),
        actor,
        reason: options.reason ?? null,
        onExpiry: expiryWarning(io),
      });
      await act({ client, options, args: command.args, ...printers(io, options.json === true) });
    });
}

/** Returns a function that warns, once, that the token of the command expires soon. */
function expiryWarning({ err }: CommandIo): (at: string) => void {
  let isShown = false;
  return (at) => {
    if (!isShown)
      err(`The token expires at ${printable(at)}. Create another one with "merchant-gateway tokens create".\n`);
    isShown = true;
  };
}

/** Returns the functions that print a command's results. */
export function printers({ out }: CommandIo, isJson: boolean): Pick<AdminCall<object>, 'show' | 'showChange'> {
  const show = (data: unknown, lines: readonly string[]): void => {
    out(isJson ? `${printableJson(data)}\n` : `${lines.map(printable).join('\n')}\n`);
  };
  return {
    show,
    showChange: (data, lines) => {
      const { isEverywhere, text } = propagationText(data.propagation);
      show(data, isEverywhere ? [...lines, text] : lines);
      if (!isEverywhere) throw new OperatorError(text);
    },
  };
}

/** Text about which gateways already apply a change. `isEverywhere` is true if all gateways apply it. */
interface PropagationText {
  readonly isEverywhere: boolean;
  readonly text: string;
}

/** Describes which gateways already apply a change, and which do not yet. */
function propagationText({ gateways, confirmed, pending, ...rest }: Propagation): PropagationText {
  const { milliseconds, projected = true } = rest;
  if (!projected) {
    return notYet(
      `The change is stored in the database, but not yet in the gateways' key store. Until the registry has written it there, gateways do not apply it. The registry keeps trying. If the database has failed over or was restored meanwhile, it may have lost the change: check with "merchant-gateway events list", and repeat a lost change.`,
    );
  }
  if (gateways === null) {
    return notYet(
      `The change is stored and written to the gateways' key store, but the confirmations of the gateways could not be read. Check them with "merchant-gateway gateways list".`,
    );
  }
  if (pending.length > 0) {
    const heading = `The change is stored, but in force on only ${confirmed} of ${counted(gateways, 'gateway')} after ${milliseconds} ms. Gateways that have not confirmed the change:`;
    const lines = pending.map(({ instanceId, host, staleUntil }) => {
      const until =
        staleUntil === null ? 'it receives the new record' : `${printable(staleUntil)} by the registry's clock`;
      return `  ${printable(instanceId)} (${printable(host)}) may decide requests without the change until ${until}`;
    });
    return notYet([heading, ...lines].join('\n'));
  }
  const text =
    gateways === 0
      ? "The change is in force: it is written to the gateways' key store. No gateway is running, so none has to confirm it."
      : `In force on ${confirmed} of ${counted(gateways, 'gateway')} after ${milliseconds} ms.`;
  return { isEverywhere: true, text };
}

function notYet(text: string): PropagationText {
  return { isEverywhere: false, text };
}
