import { Command, Option } from 'commander';
import { roleNames } from '../../../registry/administrators/roles.js';
import { type Administrator, administratorSchema, roleSchema } from '../../../registry/administrators/schema.js';
import { identifierForm } from '../../../registry/fields.js';
import Type from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import { administer } from '../admin-call.js';
import { collect, pageLine, pageOptions, type PageOptions, pageQuery } from '../arguments.js';
import { type Environment, WrongUsage } from '../peer.js';
import { recordLines, tableLines } from '../table.js';

interface CreateOptions {
  readonly name: string;
  readonly role: readonly string[];
  readonly merchant?: string;
  readonly machine?: true;
  readonly issuer?: string;
  readonly subject?: string;
}

interface SetOptions {
  readonly role?: readonly string[];
  readonly enable?: true;
  readonly issuer?: string;
  readonly subject?: string;
}

type ListOptions = PageOptions & { readonly status?: string; readonly merchant?: string };

/** Creates the commands `administrators create`, `list`, `show`, `set` and `disable`. */
export function administratorsCommand(io: CommandIo, env: Environment = process.env): Command {
  const administrators = new Command('administrators').description(
    'manage the people and programs that may use the admin API, and their roles',
  );
  const edge = { io, env };

  const create = administrators
    .command('create')
    .description('create an administrator; then create a token with "merchant-gateway tokens create"');
  create
    .requiredOption('--name <name>', 'unique name, shown in events, e.g. ada or ci-deploy')
    .requiredOption<readonly string[]>('--role <role>', `role: ${roleNames.join(', ')} (repeatable)`, collect)
    .option(
      '--merchant <id>',
      'the only merchant that the administrator sees; required with the roles merchant-admin and merchant-viewer',
    )
    .option('--machine', 'the administrator is a program, not a person');
  identityOptions(create);
  administer<CreateOptions>(create, edge, async ({ client, options, show }) => {
    const { name, role: roles, merchant: merchantId, machine, issuer, subject } = options;
    const body = { name, roles, merchantId, kind: machine === true ? 'machine' : 'person', issuer, subject };
    const path = ['administrators'];
    const { data } = await client.ask({ method: 'POST', path, body, expects: administratorSchema });
    show(data, [
      ...administratorLines(data),
      '',
      `Next: merchant-gateway tokens create --administrator ${data.id} --name <name>`,
    ]);
  });

  const list = administrators.command('list').description('list administrators by name');
  list
    .addOption(new Option('--status <status>', 'only administrators with this status').choices(['ACTIVE', 'DISABLED']))
    .option('--merchant <id>', 'only members of this merchant');
  administer<ListOptions>(pageOptions(list), edge, async ({ client, options, show }) => {
    const query = { ...pageQuery(options), status: options.status, merchantId: options.merchant };
    const expects = Type.Array(administratorSchema);
    const { data, page } = await client.ask({ method: 'GET', path: ['administrators'], query, expects });
    const rows = data.map((one) => [
      ...[one.id, one.name, one.kind, one.status, one.roles.join(' '), one.merchantId ?? 'all'],
    ]);
    const heading = ['ID', 'NAME', 'KIND', 'STATUS', 'ROLES', 'MERCHANT'];
    const table = rows.length === 0 ? [] : tableLines(heading, rows, { wrap: ['ROLES'] });
    show(data, [...table, pageLine(rows.length, 'administrator', page)]);
  });

  const one = administrators.command('show <id>').description('show one administrator');
  administer(one, edge, async ({ client, args, show }) => {
    const path = ['administrators', administratorIdIn(args[0])];
    const { data } = await client.ask({ method: 'GET', path, expects: administratorSchema });
    show(data, administratorLines(data));
  });

  const set = administrators.command('set <id>').description('change the roles or the identity of an administrator');
  set
    .option<readonly string[]>('--role <role>', 'new role; replaces all current roles (repeatable)', collect)
    .option('--enable', 'enable a disabled administrator');
  identityOptions(set);
  administer<SetOptions>(set, edge, async ({ client, args, options, show }) => {
    const { role: roles, enable, issuer, subject } = options;
    const given = { roles, status: enable === true ? 'ACTIVE' : undefined, issuer, subject };
    const body = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
    if (Object.keys(body).length === 0) throw new WrongUsage('give at least one change, such as --role support');
    const path = ['administrators', administratorIdIn(args[0])];
    const { data } = await client.ask({ method: 'PATCH', path, body, expects: administratorSchema });
    show(data, administratorLines(data));
  });

  const disable = administrators
    .command('disable <id>')
    .description('disable an administrator, and end their tokens and sessions at once');
  administer(disable, edge, async ({ client, args, show }) => {
    const path = ['administrators', administratorIdIn(args[0])];
    const body = { status: 'DISABLED' };
    const { data } = await client.ask({ method: 'PATCH', path, body, expects: administratorSchema });
    show(data, [`The administrator ${data.name} is disabled: no token of theirs is accepted any more.`]);
  });
  return administrators;
}

/** Creates the command `roles`. */
export function rolesCommand(io: CommandIo, env: Environment = process.env): Command {
  const command = new Command('roles').description('print the table of roles and their permissions');
  administer(command, { io, env }, async ({ client, show }) => {
    const { data } = await client.ask({ method: 'GET', path: ['roles'], expects: Type.Array(roleSchema) });
    const rows = data.map(({ name, description, permissions }) => [name, description, permissions.join(' ')]);
    show(data, tableLines(['ROLE', 'WHAT', 'PERMISSIONS'], rows, { wrap: ['WHAT', 'PERMISSIONS'] }));
  });
  return command;
}

/**
 * Validates the id of an administrator, member, session or token.
 * @param what the kind of record and the command that lists the ids, as text for the error message
 * @throws WrongUsage
 */
export function administratorIdIn(
  text: string | undefined,
  what = 'an administrator: see "merchant-gateway administrators list"',
): string {
  // The message does not repeat the text, because it could be a token that was pasted by mistake.
  if (text !== undefined && identifierForm.test(text) && !text.startsWith('mga_')) return text;
  throw new WrongUsage(`the argument must be the id of ${what}`);
}

function identityOptions(command: Command): void {
  command
    .option('--issuer <url>', 'issuer of the OpenID provider that signs the person in')
    .option('--subject <sub>', 'subject (sub) of the person at that provider');
}

function administratorLines(one: Administrator): string[] {
  return recordLines([
    ['id', one.id],
    ['name', one.name],
    ['kind', one.kind],
    ['status', one.status],
    ['roles', one.roles.join(' ')],
    ['merchant', one.merchantId ?? 'all'],
    ...(one.issuer === null ? [] : ([['issuer', one.issuer]] as const)),
    ...(one.subject === null ? [] : ([['subject', one.subject]] as const)),
    ['created', one.createdAt],
    ['changed', one.updatedAt],
  ]);
}
