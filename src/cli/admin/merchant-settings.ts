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
  readonly denyEveryIp?: true;
  readonly allowOrigin?: readonly string[];
  readonly anyOrigin?: true;
  readonly denyEveryOrigin?: true;
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
  if (isSet) listEnds(command, 'ip', 'address');
  command.option<readonly string[]>('--allow-origin <origin>', `admit these alone${lists}; may be repeated`, collect);
  if (isSet) listEnds(command, 'origin', 'origin');
  return command.option<readonly string[]>(
    '--confirm <flag>',
    `say that it is meant: ${confirmations.join(', ')}; may be repeated`,
    collect,
  );
}

/** No list admits everybody, and an empty one admits nobody: each is said in words, so that neither is taken for the other. */
function listEnds(command: Command, list: 'ip' | 'origin', what: string): void {
  const [allow, any] = list === 'ip' ? ['allowIp', 'anyIp'] : ['allowOrigin', 'anyOrigin'];
  command.addOption(new Option(`--any-${list}`, `admit every ${what}: no list`).conflicts(allow));
  command.addOption(
    new Option(`--deny-every-${list}`, `admit no ${what}: an empty list, which needs --confirm empty_list`).conflicts([
      allow,
      any,
    ]),
  );
}

/**
 * What the API is asked for.
 * @throws WrongUsage where that is nothing
 */
export function changesOf({ name, status, goLive, confirm, ...lists }: SettingOptions): MerchantChanges {
  const ipAllowlist = lists.denyEveryIp === true ? [] : lists.anyIp === true ? null : lists.allowIp;
  const originAllowlist = lists.denyEveryOrigin === true ? [] : lists.anyOrigin === true ? null : lists.allowOrigin;
  const given = { name, status, goLive, ipAllowlist, originAllowlist };
  const changes = Object.entries(given).filter(([, value]) => value !== undefined);
  if (changes.length === 0) throw new WrongUsage('say what to change, such as --status SUSPENDED');
  return Object.fromEntries([...changes, ...(confirm === undefined ? [] : [['confirm', confirm]])]) as MerchantChanges;
}
