import { Option, type Command } from 'commander';
import { confirmations } from '../../registry/merchants/allowlists.js';
import type { MerchantChanges } from '../../registry/merchants/schema.js';
import { WrongUsage } from './access.js';
import { collect } from './arguments.js';

/** What may be said of a merchant on the command line. */
export interface SettingOptions {
  readonly name?: string;
  readonly status?: string;
  readonly goLive?: boolean;
  readonly allowIp?: readonly string[];
  readonly anyIp?: true;
  readonly allowOrigin?: readonly string[];
  readonly anyOrigin?: true;
  readonly confirm?: readonly string[];
}

/** Adds the options for what may be said of a merchant; those that take something back only where one is changed. */
export function settingOptions(command: Command, use: 'create' | 'set' = 'create'): Command {
  const isSet = use === 'set';
  const lists = isSet ? ', in place of those there are' : '';
  command
    .option('--status <status>', 'a word in upper case; only an ACTIVE merchant gets in')
    .option('--go-live', 'admit the merchant to production');
  if (isSet) command.option('--no-go-live', 'shut the merchant out of production');
  command.option<readonly string[]>(
    '--allow-ip <cidr>',
    `admit these addresses alone${lists}; may be repeated`,
    collect,
  );
  if (isSet) command.addOption(new Option('--any-ip', 'admit every address').conflicts('allowIp'));
  command.option<readonly string[]>('--allow-origin <origin>', `admit these alone${lists}; may be repeated`, collect);
  if (isSet) command.addOption(new Option('--any-origin', 'admit every origin').conflicts('allowOrigin'));
  return command.option<readonly string[]>(
    '--confirm <flag>',
    `say that it is meant: ${confirmations.join(', ')}; may be repeated`,
    collect,
  );
}

/**
 * What the API is asked for.
 * @throws WrongUsage where that is nothing
 */
export function changesOf({ name, status, goLive, confirm, ...lists }: SettingOptions): MerchantChanges {
  const ipAllowlist = lists.anyIp === true ? null : lists.allowIp;
  const originAllowlist = lists.anyOrigin === true ? null : lists.allowOrigin;
  const given = { name, status, goLive, ipAllowlist, originAllowlist };
  const changes = Object.entries(given).filter(([, value]) => value !== undefined);
  if (changes.length === 0) throw new WrongUsage('say what to change, such as --status SUSPENDED');
  return Object.fromEntries([...changes, ...(confirm === undefined ? [] : [['confirm', confirm]])]) as MerchantChanges;
}
