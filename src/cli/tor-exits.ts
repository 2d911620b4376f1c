import { Command } from 'commander';
import { loadConfig } from '../config/load.js';
import { OperatorError } from '../config/operator-error.js';
import type { Config } from '../config/schema.js';
import type { MaintainedTorExits } from '../adapters/tor/maintained-tor-exits.js';
import type { TorListStatus } from '../gateway/ports.js';
import { parseIpAddress } from '../policy/ip-address.js';
import type { IpAddress } from '../policy/ip-address.js';
import { createLogger } from '../telemetry/logger.js';
import { recordLines, tableLines } from './admin/table.js';
import { printable, printableJson } from './admin/printable.js';
import type { CommandIo } from './command-io.js';
import { openGeoIp } from './compose/gateway-ports.js';
import { openTorExits } from './compose/tor-exits.js';

interface Options {
  readonly config?: string;
  readonly json?: true;
  readonly acceptSmaller?: true;
}

/** Creates the commands `tor-exits refresh`, `status` and `check`. */
export function torExitsCommand(io: CommandIo): Command {
  const command = new Command('tor-exits').description(
    'refresh the Tor exit list, show its state, or look up an address',
  );
  withOptions(command.command('refresh'))
    .description(
      'read every source now, save the list in the snapshot file, and share it with all gateways that use the same Redis',
    )
    .option('--accept-smaller', 'accept a list that is less than half as long as the previous one')
    .addHelpText('after', '\nExit status: 0 every source was read, 1 a source failed, 2 wrong usage.')
    .action((options: Options) => refresh(options, io));
  withOptions(command.command('status'))
    .description('show the state of the list that the gateways use, without downloading any source')
    .addHelpText('after', '\nExit status: 0 the list is available, 1 it is missing or too old, 2 wrong usage.')
    .action((options: Options) => status(options, io));
  const lookUp = command.command('check').argument('<ip>', 'an IPv4 or IPv6 address');
  withOptions(lookUp)
    .description('check whether an address is a Tor exit, without downloading any source')
    .addHelpText('after', '\nExit status: 0 not a Tor exit, 1 a Tor exit or unknown, 2 wrong usage.')
    .action((ip: string, options: Options) => {
      const address = parseIpAddress(ip);
      if (address !== null) return check(address, options, io);
      return lookUp.error('error: expected one IPv4 or IPv6 address, without a zone, a port or a prefix');
    });
  return command;
}

function withOptions(command: Command): Command {
  return command
    .option('--config <file>', 'configuration file (default: built-in defaults)')
    .option('--json', 'print only JSON');
}

async function refresh({ config: file, json, acceptSmaller }: Options, io: CommandIo): Promise<void> {
  await withList(loadConfig({ file }), io, async (exits) => {
    if (!(await exits.refreshNow(acceptSmaller === true))) {
      throw new OperatorError(
        'The list was not refreshed. If no message above gives a reason, another process is reading the sources: try again in a minute.',
      );
    }
    show(exits.status(), json, io);
    const problems = exits
      .status()
      .sources.flatMap(({ source, problem }) => (problem === null ? [] : [[source, problem]]));
    if (problems.length === 0) return;
    throw new OperatorError(
      problems.map(([source = '', problem = '']) => `No new list from ${printable(source)}: ${problem}.`).join('\n'),
    );
  });
}

async function status({ config: file, json }: Options, io: CommandIo): Promise<void> {
  const config = loadConfig({ file });
  await withList(config, io, (exits) => {
    show(exits.status(), json, io);
    if (!config.torExits.enabled) io.err(`Gateways do not use the list: ${switchedOff}\n`);
    if (!exits.status().available) throw new OperatorError(noList);
  });
}

async function check(address: IpAddress, { config: file, json }: Options, io: CommandIo): Promise<void> {
  const config = loadConfig({ file });
  await withList(config, io, async (exits) => {
    const geoIp = await openGeoIp(config, createLogger('warn'));
    const { available, digest } = exits.status();
    const listed = available ? exits.has(address) : null;
    const known = geoIp?.isTorExit(address) ?? null;
    geoIp?.close();
    // If no list is loaded and the GeoIP database does not report a Tor exit, the result is unknown (null): the
    // configured sources could contain the address.
    const open = listed === null && config.torExits.sources.length > 0 ? null : (listed ?? known);
    const isExit = listed === true || known === true ? true : open;
    const result = { address: address.text, exit: isExit, listed, anonymousIp: known, digest };
    if (json === true) io.out(`${printableJson(result)}\n`);
    else if (isExit !== null) io.out(`${address.text} is ${isExit ? 'a' : 'no'} Tor exit.\n`);
    if (isExit === null) throw new OperatorError(noList);
    if (isExit && !config.torExits.enabled) throw new OperatorError(`Gateways do not reject Tor exits: ${switchedOff}`);
    if (isExit) throw new OperatorError(`Gateways reject requests from ${address.text} (tor_blocked).`);
  });
}

const switchedOff = 'torExits.enabled is false.';
const noList =
  'The Tor exit list is missing or too old. Run "merchant-gateway tor-exits status" to see why, and ' +
  '"merchant-gateway tor-exits refresh" to read the sources.';

/** Opens the Tor exit list with the contents that gateways use, runs `act`, and closes the list. */
async function withList(
  config: Config,
  { err }: CommandIo,
  act: (exits: MaintainedTorExits) => Promise<void> | void,
): Promise<void> {
  const exits = await openTorExits(config, {
    onRefused: () => undefined, // ignored, because the status contains the reason
    onList: () => undefined,
    onProblem: (problem, error) => {
      err(`${problem}: ${error instanceof Error ? error.message : 'unknown reason'}\n`);
    },
    onRecovered: () => undefined,
    onConnectionError: () => undefined, // ignored, because the failing operation reports the error
  });
  try {
    await exits.load();
    await act(exits);
  } finally {
    await exits.close();
  }
}

function show(status: TorListStatus, json: true | undefined, { out }: CommandIo): void {
  if (json === true) {
    out(`${printableJson(status)}\n`);
    return;
  }
  const { available, size, digest, ageSeconds, sources } = status;
  const rows = sources.map(({ source, confirmedAt, datedAt, size: own, leftOut, problem }) => {
    return [source, confirmedAt ?? 'never', datedAt ?? '-', String(own), String(leftOut), problem ?? ''];
  });
  const lines = [
    ...recordLines([
      ['in force', available ? 'yes' : 'no'],
      ['exits', String(size)],
      ['sha-256', digest ?? '-'],
      ['age', ageSeconds === null ? '-' : `${ageSeconds} s`],
    ]),
    '',
    ...tableLines(['SOURCE', 'CONFIRMED', 'DATED', 'EXITS', 'LEFT OUT', 'PROBLEM'], rows, { wrap: ['PROBLEM'] }),
  ];
  out(`${lines.join('\n')}\n`);
}
