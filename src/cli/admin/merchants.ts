import { Command, Option } from 'commander';
import { confirmations } from '../../registry/merchants/ip-allowlist.js';
import { type Merchant, type MerchantChanges, merchantSchema } from '../../registry/merchants/schema.js';
import { propagationSchema } from '../../registry/propagation-schema.js';
import Type from '../../typebox/typebox.js';
import type { CommandIo } from '../command-io.js';
import { administer } from './admin-call.js';
import { collect, idIn, pageLine, pageOptions, type PageOptions, pageQuery } from './arguments.js';
import { type Environment, WrongUsage } from './peer.js';
import { merchantUsageCommands } from './usage/merchant-usage.js';
import { recordLines, tableLines } from './table.js';

const changedMerchant = Type.Object({ ...merchantSchema.properties, propagation: propagationSchema });

type ListOptions = PageOptions & { readonly search?: string; readonly status?: string };

/** Creates the commands `merchants create`, `set`, `list`, `show`, `addresses` and `forget-usage`. */
export function merchantsCommand(io: CommandIo, env: Environment = process.env): Command {
  const merchants = new Command('merchants').description('create, change and show merchants');
  const edge = { io, env };

  const create = merchants.command('create').description('create a merchant');
  settingOptions(create.requiredOption('--name <name>', 'name of the merchant'));
  administer<SettingOptions>(create, edge, async ({ client, options, showChange }) => {
    const body = changesOf(options);
    const { data } = await client.ask({ method: 'POST', path: ['merchants'], body, expects: changedMerchant });
    showChange(data, merchantLines(data));
  });

  const set = merchants.command('set <id>').description('change the given properties of a merchant');
  settingOptions(set.option('--name <name>', 'name of the merchant'), 'set');
  administer<SettingOptions>(set, edge, async ({ client, options, args, showChange }) => {
    const path = ['merchants', idIn(args[0], 'merchant')];
    const { data } = await client.ask({ method: 'PATCH', path, body: changesOf(options), expects: changedMerchant });
    showChange(data, merchantLines(data));
  });

  const list = merchants.command('list').description('list merchants, newest first');
  list
    .option('--search <text>', 'only merchants whose name contains this text')
    .option('--status <status>', 'only merchants with this status');
  administer<ListOptions>(pageOptions(list), edge, async ({ client, options, show }) => {
    const query = { ...pageQuery(options), name: options.search, status: options.status };
    const expects = Type.Array(merchantSchema);
    const { data, page } = await client.ask({ method: 'GET', path: ['merchants'], query, expects });
    const rows = data.map((one) => [
      ...[one.id, one.name, one.status, one.goLive ? 'yes' : 'no'],
      ...[countOf(one.ipAllowlist), countOf(one.originAllowlist)],
    ]);
    const heading = ['ID', 'NAME', 'STATUS', 'LIVE', 'IPS', 'ORIGINS'];
    const table = rows.length === 0 ? [] : tableLines(heading, rows, { cut: ['NAME'] });
    show(data, [...table, pageLine(rows.length, 'merchant', page)]);
  });

  const show = merchants.command('show <id>').description('show one merchant');
  administer(show, edge, async ({ client, args, show }) => {
    const path = ['merchants', idIn(args[0], 'merchant')];
    const { data } = await client.ask({ method: 'GET', path, expects: merchantSchema });
    show(data, merchantLines(data));
  });
  merchantUsageCommands(merchants, edge);
  return merchants;
}

function merchantLines(merchant: Merchant): string[] {
  return recordLines([
    ['id', merchant.id],
    ['name', merchant.name],
    ['status', merchant.status],
    ['live', merchant.goLive ? 'yes' : 'no'],
    ['IP addresses', entriesOf(merchant.ipAllowlist)],
    ['origins', entriesOf(merchant.originAllowlist)],
    ['revision', String(merchant.revision)],
    ['created', merchant.createdAt],
    ['changed', merchant.updatedAt],
  ]);
}

function entriesOf(list: readonly string[] | null): string {
  return list === null ? 'any' : list.join(', ') || 'empty: every request is rejected';
}

function countOf(list: readonly string[] | null): string {
  return list === null ? 'any' : list.length === 0 ? 'none' : String(list.length);
}

/** Options that set the properties of a merchant. */
interface SettingOptions {
  readonly name?: string;
  readonly status?: string;
  readonly goLive?: boolean;
  readonly allowIp?: readonly string[];
  readonly anyIp?: true;
  readonly denyEveryIp?: true;
  readonly allowOrigin?: readonly string[];
  readonly anyOrigin?: true;
  readonly denyEveryOrigin?: true;
  readonly confirm?: readonly string[];
}

/**
 * Adds the options that set the properties of a merchant. Options that reset a property exist only for `merchants set`.
 */
function settingOptions(command: Command, use: 'create' | 'set' = 'create'): Command {
  const isSet = use === 'set';
  const lists = isSet ? 'replaces the allowlist, ' : '';
  command
    .option(
      '--status <status>',
      'status in upper case, e.g. ACTIVE or SUSPENDED; only requests of ACTIVE merchants are accepted',
    )
    .option('--go-live', 'allow the merchant to use production');
  if (isSet) command.option('--no-go-live', 'do not allow the merchant to use production');
  command.option<readonly string[]>(
    '--allow-ip <cidr>',
    `accept requests only from this address or CIDR (${lists}repeatable)`,
    collect,
  );
  if (isSet) listEnds(command, 'ip', 'address');
  command.option<readonly string[]>(
    '--allow-origin <origin>',
    `accept requests only from this origin (${lists}repeatable)`,
    collect,
  );
  if (isSet) listEnds(command, 'origin', 'origin');
  return command.option<readonly string[]>(
    '--confirm <flag>',
    `confirm a risky change of an allowlist; the flag is one of ${confirmations.join(', ')} (repeatable)`,
    collect,
  );
}

/**
 * Adds one option that removes a list (accepts all) and another that sets an empty list (rejects all). Separate options
 * prevent confusion of the two cases.
 */
function listEnds(command: Command, list: 'ip' | 'origin', what: string): void {
  const [allow, any] = list === 'ip' ? ['allowIp', 'anyIp'] : ['allowOrigin', 'anyOrigin'];
  command.addOption(
    new Option(`--any-${list}`, `remove the allowlist: accept requests from any ${what}`).conflicts(allow),
  );
  command.addOption(
    new Option(
      `--deny-every-${list}`,
      `set an empty allowlist: reject requests from every ${what}; requires --confirm empty_list`,
    ).conflicts([allow, any]),
  );
}

/**
 * Returns the changes that the options request.
 * @throws WrongUsage if the options request no change
 */
function changesOf({ name, status, goLive, confirm, ...lists }: SettingOptions): MerchantChanges {
  const ipAllowlist = lists.denyEveryIp === true ? [] : lists.anyIp === true ? null : lists.allowIp;
  const originAllowlist = lists.denyEveryOrigin === true ? [] : lists.anyOrigin === true ? null : lists.allowOrigin;
  const given = { name, status, goLive, ipAllowlist, originAllowlist };
  const changes = Object.entries(given).filter(([, value]) => value !== undefined);
  if (changes.length === 0) throw new WrongUsage('give at least one change, such as --status SUSPENDED');
  return Object.fromEntries([...changes, ...(confirm === undefined ? [] : [['confirm', confirm]])]) as MerchantChanges;
}
