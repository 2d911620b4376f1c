import { randomUUID } from 'node:crypto';
import { Command, Option } from 'commander';
import { OperatorError } from '../../../config/operator-error.js';
import { openedWalletSchema, type OperatorWallet, operatorWalletSchema } from '../../../services/operators/schema.js';
import Type from '../../../typebox/typebox.js';
import type { CommandIo } from '../../command-io.js';
import type { AdminEdge } from '../admin-call.js';
import { type AdminAccess, AdminClient } from '../admin-client.js';
import { idIn, pageLine, pageOptions, type PageOptions, pageQuery } from '../arguments.js';
import { type Environment, WrongUsage } from '../peer.js';
import { RejectedByApi } from '../refused.js';
import { recordLines, tableLines } from '../table.js';
import { accountsCommand, entriesCommand, movementCommand } from './movements.js';
import { registryAccess } from './operator-access.js';
import { operate, type OperatorOptions } from './operator-call.js';
import { currencyIn, environmentOption, walletIdIn } from './options.js';

interface CreateOptions extends OperatorOptions {
  readonly registryCheck: boolean;
  readonly merchant: string;
  readonly environment: string;
  readonly currency: string;
  readonly additional?: true;
  readonly id?: string;
}

interface ListOptions extends PageOptions {
  readonly merchant?: string;
  readonly environment?: string;
  readonly currency?: string;
}

/** Creates the commands `wallets create`, `list`, `show`, `fund`, `withdraw`, `entries` and `accounts`. */
export function walletsCommand(io: CommandIo, env: Environment = process.env): Command {
  const wallets = new Command('wallets').description('create, fund and show wallets and their ledger entries');
  const edge = { io, env };
  createCommand(wallets, edge);
  listCommand(wallets, edge);
  const show = wallets.command('show <id>').description('show one wallet');
  operate(show, edge, async ({ client, args, show }) => {
    const path = ['wallets', walletIdIn(args[0])];
    const { data } = await client.ask({ method: 'GET', path, expects: operatorWalletSchema });
    show(data, walletLines(data));
  });
  movementCommand(wallets, edge, 'fund');
  movementCommand(wallets, edge, 'withdraw');
  entriesCommand(wallets, edge);
  accountsCommand(wallets, edge);
  return wallets;
}

function createCommand(wallets: Command, edge: AdminEdge): void {
  const create = wallets
    .command('create')
    .description(
      'create an empty wallet: the default wallet of the merchant in the currency, unless you give --additional; a repeated command creates no second default wallet',
    )
    .requiredOption('--merchant <id>', 'merchant of the wallet')
    .addOption(environmentOption('environment of the wallet').makeOptionMandatory())
    .requiredOption('--currency <code>', 'currency of the wallet, e.g. NGN', currencyIn)
    .option('--additional', 'create an additional wallet next to the default one')
    .addOption(
      new Option(
        '--id <id>',
        'id of the additional wallet (default: generated and printed); to retry, give the printed id',
      ),
    )
    .option('--no-registry-check', 'skip the check that the registry knows the merchant');
  operate<CreateOptions>(create, edge, async ({ client, options, show }) => {
    const { environment, currency, additional } = options;
    const merchantId = idIn(options.merchant, 'merchant');
    if (options.id !== undefined && additional !== true)
      throw new WrongUsage('--id requires --additional, because you cannot choose the id of a default wallet');
    const id = additional === true ? walletIdIn(options.id ?? randomUUID()) : undefined;
    await requireMerchant(merchantId, options, edge.env);
    if (id !== undefined && options.id === undefined)
      edge.io.err(`The wallet gets the id ${id}. If the command is interrupted, retry with --id ${id}\n`);
    const { data } = await client.ask({
      ...({ method: 'POST', path: ['wallets'], expects: openedWalletSchema } as const),
      body: { merchantId, environment, currency, ...(id === undefined ? {} : { isDefault: false, id }) },
      ifUnclear:
        id === undefined
          ? 'The wallet may have been created nevertheless. Repeat the command: it creates no second wallet.'
          : `The wallet may have been created nevertheless. Retry with --id ${id}: this creates no second wallet.`,
    });
    show(data, [...walletLines(data), ...(data.isRepeated ? ['The wallet already existed.'] : [])]);
  });
}

function listCommand(wallets: Command, edge: AdminEdge): void {
  const list = wallets.command('list').description('list wallets, newest first');
  list
    .option('--merchant <id>', 'only wallets of this merchant')
    .addOption(environmentOption('only wallets of this environment'))
    .option('--currency <code>', 'only wallets in this currency', currencyIn);
  operate<ListOptions>(pageOptions(list), edge, async ({ client, options, show }) => {
    const { merchant, environment, currency } = options;
    const merchantId = merchant === undefined ? undefined : idIn(merchant, 'merchant');
    const query = { ...pageQuery(options), merchantId, environment, currency };
    const expects = Type.Array(operatorWalletSchema);
    const { data, page } = await client.ask({ method: 'GET', path: ['wallets'], query, expects });
    const rows = data.map((one) => [
      ...[one.id, one.merchantId, one.environment, one.currency, String(one.balance)],
      one.isDefault ? 'yes' : 'no',
    ]);
    const heading = ['WALLET', 'MERCHANT', 'ENVIRONMENT', 'CURRENCY', 'BALANCE (MINOR UNITS)', 'DEFAULT'];
    show(data, [...(rows.length === 0 ? [] : tableLines(heading, rows)), pageLine(rows.length, 'wallet', page)]);
  });
}

function walletLines(wallet: OperatorWallet): string[] {
  return recordLines([
    ['wallet', wallet.id],
    ['merchant', wallet.merchantId],
    ['environment', wallet.environment],
    ['currency', wallet.currency],
    ['balance', `${wallet.balance} (minor units)`],
    ['default', wallet.isDefault ? 'yes' : 'no'],
    ['created', wallet.createdAt],
    ['created by', wallet.createdBy ?? 'unknown'],
  ]);
}

/**
 * Makes sure that the merchant exists in the registry, unless `--no-registry-check` is given. The services cannot check
 * merchant ids, and money in a wallet with a mistyped merchant id could not be paid out.
 * @throws OperatorError if the merchant does not exist, or the registry is unreachable or rejects the request
 */
async function requireMerchant(id: string, options: CreateOptions, env: Environment): Promise<void> {
  if (!options.registryCheck) return;
  const client = new AdminClient({ ...(await accessForMerchant(options, env)), reason: options.reason ?? null });
  try {
    await client.ask({ method: 'GET', path: ['merchants', id], expects: Type.Object({ id: Type.Literal(id) }) });
  } catch (error) {
    if (!(error instanceof RejectedByApi) || error.status !== 404) throw error;
    throw new OperatorError(
      `The registry has no merchant ${id}, so no wallet was created: see "merchant-gateway merchants list".`,
    );
  }
}

async function accessForMerchant(options: CreateOptions, env: Environment): Promise<AdminAccess> {
  try {
    return await registryAccess(options, env);
  } catch (error) {
    if (!(error instanceof WrongUsage)) throw error;
    throw new WrongUsage(
      `${error.message}. The command needs access to the registry to check that the merchant exists. ` +
        'To skip the check, use --no-registry-check',
    );
  }
}
