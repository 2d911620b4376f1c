import { Command, Option } from 'commander';
import { OperatorError } from '../../../config/operator-error.js';
import { type ConsoleLink, linkSchema } from '../../../registry/console/schema.js';
import { type Member, memberRoles, memberSchema } from '../../../registry/members/schema.js';
import Type from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { administer } from '../admin-call.js';
import { idIn, pageLine, pageOptions, type PageOptions, pageQuery } from '../arguments.js';
import { type Environment, WrongUsage } from '../peer.js';
import { printable } from '../printable.js';
import { tableLines } from '../table.js';
import { administratorIdIn } from './administrators.js';

interface OfMerchant {
  readonly merchant: string;
}

interface SetOptions extends OfMerchant {
  readonly role?: string;
  readonly enable?: true;
  readonly disable?: true;
}

/** Creates the commands `members list`, `invite`, `link` and `set`. */
export function membersCommand(io: CommandIo, env: Environment = process.env): Command {
  const members = new Command('members').description('manage the people of a merchant, who see only this merchant');
  const edge = { io, env };
  const of = (command: Command): Command =>
    command.requiredOption('--merchant <id>', 'merchant to which the members belong');
  const role = (text: string): Option => new Option('--role <role>', text).choices([...memberRoles]);
  const pathOf = ({ merchant }: OfMerchant, ...more: readonly string[]): string[] => [
    ...['merchants', idIn(merchant, 'merchant'), 'members'],
    ...more,
  ];
  const memberId = (text: string | undefined): string =>
    administratorIdIn(text, 'a member: see "merchant-gateway members list"');

  const list = of(members.command('list').description('list the members of a merchant by name'));
  list.addOption(new Option('--status <status>', 'only members with this status').choices(['ACTIVE', 'DISABLED']));
  administer<PageOptions & OfMerchant & { readonly status?: string }>(
    pageOptions(list),
    edge,
    async ({ client, options, show }) => {
      const query = { ...pageQuery(options), status: options.status };
      const expects = Type.Array(memberSchema);
      const { data, page } = await client.ask({ method: 'GET', path: pathOf(options), query, expects });
      show(data, [...(data.length === 0 ? [] : memberTable(data)), pageLine(data.length, 'member', page)]);
    },
  );

  const invite = of(
    members.command('invite <name>').description('add a member, and print a link that signs them in to the console'),
  );
  invite.addOption(role('what the member may do').makeOptionMandatory());
  administer<OfMerchant & { readonly role: string }>(invite, edge, async ({ client, args, options, show }) => {
    const body = { name: args[0], role: options.role };
    const { data: member } = await client.ask({
      ...{ method: 'POST', path: pathOf(options), body, expects: memberSchema },
    });
    const path = pathOf(options, member.id, 'links');
    const created = client.ask({ method: 'POST', path, expects: linkSchema });
    const { data: link } = await created.catch((error: unknown) => {
      if (!(error instanceof OperatorError)) throw error;
      const next = `"merchant-gateway members link ${printable(member.id)} --merchant ${options.merchant}"`;
      throw new OperatorError(`${error.message}\nThe member was added without a link. For a link, run ${next}.`, {
        cause: error,
      });
    });
    show({ member, link }, [...memberTable([member]), '', ...linkLines(link)]);
  });

  const link = of(
    members.command('link <id>').description('print a new link that signs a member in to the console once'),
  );
  administer<OfMerchant>(link, edge, async ({ client, args, options, show }) => {
    const path = pathOf(options, memberId(args[0]), 'links');
    const { data } = await client.ask({ method: 'POST', path, expects: linkSchema });
    show(data, linkLines(data));
  });

  const set = of(members.command('set <id>').description('change the role of a member, or disable or enable them'));
  set
    .addOption(role('the new role'))
    .option('--disable', 'disable the member, and end their sessions and tokens at once')
    .option('--enable', 'enable a disabled member');
  administer<SetOptions>(set, edge, async ({ client, args, options, show }) => {
    const { role: wanted, enable, disable } = options;
    if (enable === true && disable === true) throw new WrongUsage('give --enable or --disable, not both');
    const status = enable === true ? 'ACTIVE' : disable === true ? 'DISABLED' : undefined;
    if (wanted === undefined && status === undefined) throw new WrongUsage('give --role, --enable or --disable');
    const body = { ...(wanted === undefined ? {} : { role: wanted }), ...(status === undefined ? {} : { status }) };
    const path = pathOf(options, memberId(args[0]));
    const { data } = await client.ask({ method: 'PATCH', path, body, expects: memberSchema });
    show(data, memberTable([data]));
  });
  return members;
}

function memberTable(members: readonly Member[]): string[] {
  const rows = members.map(({ id, name, status, roles, hasSignIn, createdAt }) => [
    ...[id, name, status, roles.join(' '), hasSignIn ? 'with OpenID' : 'with links', createdAt],
  ]);
  return tableLines(['ID', 'NAME', 'STATUS', 'ROLE', 'SIGNS IN', 'CREATED'], rows);
}

function linkLines({ url, name, expiresAt }: ConsoleLink): string[] {
  return [
    url,
    '',
    `Send this link to ${name} over a private channel: it signs them in once, and is valid until ${expiresAt}.`,
  ];
}
