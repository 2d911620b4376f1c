import { Command } from 'commander';
import { merchantSchema, type Merchant } from '../../registry/merchants/schema.js';
import { propagationSchema } from '../../registry/propagation-schema.js';
import Type from '../../typebox/typebox.js';
import type { CommandIo } from '../command-io.js';
import type { Environment } from './access.js';
import { administer } from './admin-call.js';
import { idIn, pageLine, pageOptions, pageQuery, type PageOptions } from './arguments.js';
import { changesOf, settingOptions, type SettingOptions } from './merchant-settings.js';
import { recordLines, tableLines } from './table.js';

const changedMerchant = Type.Object({ ...merchantSchema.properties, propagation: propagationSchema });

type ListOptions = PageOptions & { readonly search?: string; readonly status?: string };

/** `merchants create`, `set`, `list` and `show`. */
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

  const set = merchants.command('set <id>').description('change what is given of a merchant');
  settingOptions(set.option('--name <name>', 'name of the merchant'), 'set');
  administer<SettingOptions>(set, edge, async ({ client, options, args, showChange }) => {
    const path = ['merchants', idIn(args[0], 'merchant')];
    const { data } = await client.ask({ method: 'PATCH', path, body: changesOf(options), expects: changedMerchant });
    showChange(data, merchantLines(data));
  });

  const list = merchants.command('list').description('list merchants, newest first');
  list.option('--search <text>', 'those whose name has this in it').option('--status <status>', 'those of this status');
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
  return list === null ? 'any' : list.join(', ') || 'none: nobody is admitted';
}

function countOf(list: readonly string[] | null): string {
  return list === null ? 'any' : list.length === 0 ? 'none' : String(list.length);
}
