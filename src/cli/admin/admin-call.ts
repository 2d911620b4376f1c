import { type Command, Option } from 'commander';
import { OperatorError } from '../../config/operator-error.js';
import type { Propagation } from '../../registry/propagation.js';
import type { CommandIo } from '../command-io.js';
import { accessOf, type AccessOptions } from './access.js';
import { actorNamed } from './actor.js';
import { AdminClient } from './admin-client.js';
import { type Environment, registryPeer, WrongUsage } from './peer.js';
import { printable, printableJson } from './printable.js';

/** One administration command while it runs. */
export interface AdminCall<Options> {
  readonly client: AdminClient;
  readonly options: Options;
  readonly args: readonly string[];
  /** Prints an answer's data: as JSON where that is wanted, in these lines otherwise. */
  readonly show: (data: unknown, lines: readonly string[]) => void;
  /**
   * Prints what was changed, and how far the change has come.
   * @throws OperatorError where it is not in force on every gateway: a script must notice
   */
  readonly showChange: (data: { readonly propagation: Propagation }, lines: readonly string[]) => void;
}

/** Where administration commands print, and the environment variables that they read. */
export interface AdminEdge {
  readonly io: CommandIo;
  readonly env: Environment;
}

type CallOptions = Omit<AccessOptions, 'address'> & {
  readonly registry?: string;
  readonly actor?: string;
  readonly json?: true;
  readonly token?: string | true;
};

/** Makes a command one of administration: with the options that all of them have, and a client of the registry. */
export function administer<Options extends object>(
  command: Command,
  { io, env }: AdminEdge,
  act: (call: AdminCall<Options>) => Promise<void>,
): void {
  command
    .option('--registry <url>', 'address of the admin API (or MERCHANT_GATEWAY_REGISTRY)')
    .option('--token-file <file>', 'file with the token of administrators (or MERCHANT_GATEWAY_TOKEN holds it)')
    .option('--config <file>', 'configuration file, for registry.listen and registry.tokenFile')
    .option('--actor <name>', 'in whose name a change is made, for events list; or else the user of this system')
    .option('--json', "print the answer's data as JSON, and nothing else")
    .addOption(new Option('--token [token]').hideHelp())
    .addHelpText(
      'after',
      '\nExit status: 0 done and in force on every gateway, 1 failed or not everywhere yet, 2 wrong usage.',
    )
    .action(async () => {
      const options = command.opts<Options & CallOptions>();
      try {
        if (options.token !== undefined) throw new WrongUsage('a token is never an argument: use --token-file');
        const actor = actorNamed(options.actor);
        const client = new AdminClient({
          ...(await accessOf({ ...options, address: options.registry }, env, registryPeer)),
          actor,
        });
        await act({ client, options, args: command.args, ...printers(io, options.json === true) });
      } catch (error) {
        if (error instanceof WrongUsage) command.error(`error: ${error.message}`);
        throw error;
      }
    });
}

/** What prints, as JSON where that is wanted. */
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

/** How far a change has come, in words, and whether all gateways go by it. */
interface PropagationText {
  readonly isEverywhere: boolean;
  readonly text: string;
}

/** Says where a change is in force, and where not yet. */
function propagationText({ gateways, confirmed, pending, ...rest }: Propagation): PropagationText {
  const { milliseconds, projected = true } = rest;
  if (!projected) {
    return notYet(
      "Stored, but not yet written to the gateways' store: until it is, gateways go by the old record. The registry goes on trying.",
    );
  }
  if (gateways === null) {
    return notYet(
      "Stored and written to the gateways' store, but which gateways have confirmed could not be asked. See gateways list.",
    );
  }
  if (pending.length > 0) {
    const heading = `Stored, but in force only on ${confirmed} of ${plural(gateways)} after ${milliseconds} ms. Not confirmed:`;
    const told = pending.map(({ instanceId, host, staleUntil }) => {
      const until = staleUntil === null ? 'it gets the new one' : `${printable(staleUntil)} by the registry's clock`;
      return `  ${printable(instanceId)} (${printable(host)}) may use the old record until ${until}`;
    });
    return notYet([heading, ...told].join('\n'));
  }
  const text =
    gateways === 0
      ? "Stored and written to the gateways' store; no gateway that it concerns runs now."
      : `In force on ${confirmed} of ${plural(gateways)} after ${milliseconds} ms.`;
  return { isEverywhere: true, text };
}

function notYet(text: string): PropagationText {
  return { isEverywhere: false, text };
}

function plural(gateways: number): string {
  return gateways === 1 ? '1 gateway' : `${gateways} gateways`;
}
