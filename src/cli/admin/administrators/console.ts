import { Command } from 'commander';
import { consoleSessionSchema, linkSchema } from '../../../registry/console/schema.js';
import Type from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { administer } from '../admin-call.js';
import { pageLine, pageOptions, type PageOptions, pageQuery } from '../arguments.js';
import type { Environment } from '../peer.js';
import { tableLines } from '../table.js';
import { administratorIdIn } from './administrators.js';

/** Creates the command `console`, which prints a link that signs an administrator in to the web console once. */
export function consoleCommand(io: CommandIo, env: Environment = process.env): Command {
  const command = new Command('console')
    .description('print a link that signs you in to the web console; it works once and expires after 10 minutes')
    .option(
      '--administrator <name>',
      'name or id of the administrator whom the link signs in (default: you); for others, you need the permission administrators:write',
    );
  administer<{ readonly administrator?: string }>(command, { io, env }, async ({ client, options, show }) => {
    const body = { administrator: options.administrator };
    const { data } = await client.ask({ method: 'POST', path: ['console-links'], body, expects: linkSchema });
    const last = `Open this link in a browser: it signs ${data.name} in once, and is valid until ${data.expiresAt}.`;
    show(data, [data.url, '', last]);
  });
  return command;
}

/** Creates the commands `sessions list` and `end`. */
export function sessionsCommand(io: CommandIo, env: Environment = process.env): Command {
  const sessions = new Command('sessions').description(
    'list and end the sessions of administrators in the web console',
  );
  const edge = { io, env };

  const list = sessions.command('list').description('list the open sessions, newest first');
  list.option(
    '--administrator <id>',
    'sessions of this administrator (default: your own); for others, you need the permission administrators:read',
  );
  administer<PageOptions & { readonly administrator?: string }>(
    pageOptions(list),
    edge,
    async ({ client, options, show }) => {
      const { administrator } = options;
      const administratorId = administrator === undefined ? undefined : administratorIdIn(administrator);
      const query = { ...pageQuery(options), administratorId };
      const expects = Type.Array(consoleSessionSchema);
      const { data, page } = await client.ask({ method: 'GET', path: ['sessions'], query, expects });
      const rows = data.map(({ id, name, createdAt, lastSeenAt, expiresAt, source, browser }) => {
        return [id, name, createdAt, lastSeenAt, expiresAt, source, browser];
      });
      const columns = ['ID', 'ADMINISTRATOR', 'SIGNED IN', 'LAST SEEN', 'ENDS', 'FROM', 'BROWSER'];
      const table = rows.length === 0 ? [] : tableLines(columns, rows, { cut: ['ADMINISTRATOR', 'BROWSER'] });
      show(data, [...table, pageLine(data.length, 'session', page)]);
    },
  );

  const end = sessions
    .command('end <id>')
    .description('end a session at once; for sessions of others, you need the permission administrators:write');
  administer(end, edge, async ({ client, args, show }) => {
    const path = ['sessions', administratorIdIn(args[0], 'a session: see "merchant-gateway sessions list"')];
    const { data } = await client.ask({ method: 'DELETE', path, expects: consoleSessionSchema });
    show(data, [`The session ${data.id} of ${data.name} has ended.`]);
  });
  return sessions;
}
