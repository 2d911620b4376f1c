import { Command } from 'commander';
import { foundSchema } from '../../registry/search/schema.js';
import Type from '../../typebox/typebox.js';
import type { CommandIo } from '../command-io.js';
import { administer } from './admin-call.js';
import { loggedIdIn } from './arguments.js';
import type { Environment } from './peer.js';
import { tableLines } from './table.js';

/** Creates the command `find`, which shows to which records an id, a name or an address belongs. */
export function findCommand(io: CommandIo, env: Environment = process.env): Command {
  const command = new Command('find')
    .description('find merchants, keys, requests and administrators by a name, an id or an IP address')
    .argument(
      '<text>',
      'part of the name of a merchant, the name of an administrator, an IP address, or the id of a merchant, key, request or administrator',
      loggedIdIn,
    );
  administer(command, { io, env }, async ({ client, args, show }) => {
    const query = { q: args[0] };
    const { data } = await client.ask({ method: 'GET', path: ['search'], query, expects: Type.Array(foundSchema) });
    const rows = data.map(({ kind, id, name, merchantId }) => [kind, id, name ?? '', merchantId ?? '']);
    const lines =
      rows.length === 0
        ? ['No merchant, key, request or administrator has this name, id or address.']
        : tableLines(['KIND', 'ID', 'NAME', 'MERCHANT'], rows, { cut: ['NAME'] });
    show(data, lines);
  });
  return command;
}
