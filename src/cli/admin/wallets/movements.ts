import type { Command } from 'commander';
import { ulid } from 'ulid';
import {
  accountSchema,
  type Entry,
  entrySchema,
  movedSchema,
  referenceForm,
} from '../../../services/operators/schema.js';
import Type from '../../../typebox/typebox.js';
import type { AdminEdge } from '../admin-call.js';
import { idIn, pageLine, pageOptions, type PageOptions, pageQuery } from '../arguments.js';
import { OperatorError } from '../../../config/operator-error.js';
import { approvalSchema } from '../../../registry/approvals/schema.js';
import type { AdminClient } from '../admin-client.js';
import { WrongUsage } from '../peer.js';
import { RejectedByApi } from '../refused.js';
import { recordLines, tableLines } from '../table.js';
import { operate } from './operator-call.js';
import { amountIn, currencyIn, environmentOption, walletIdIn } from './options.js';

interface MovementOptions {
  readonly amount: number;
  readonly currency: string;
  readonly environment: string;
  readonly reason: string;
  readonly reference?: string;
  readonly merchant?: string;
  readonly approval?: string;
}

const descriptions = {
  fund: "move money to a wallet from the operator's float, the account that funds wallets; if you repeat the command with the same --reference, the money is not moved again",
  withdraw:
    "move money from a wallet back to the operator's float, the account that funds wallets; if you repeat the command with the same --reference, the money is not moved again",
};

/** Creates the command `wallets fund` or `wallets withdraw`. */
export function movementCommand(wallets: Command, edge: AdminEdge, kind: 'fund' | 'withdraw'): void {
  const command = wallets.command(`${kind} <id>`).description(descriptions[kind]);
  command
    .requiredOption('--amount <number>', 'amount in minor units: 150000 is 1,500.00 NGN', amountIn)
    .requiredOption('--currency <code>', 'currency of the wallet, e.g. NGN', currencyIn)
    .addOption(environmentOption('environment of the wallet').makeOptionMandatory())
    .requiredOption('--reason <text>', 'reason, recorded in the ledger')
    .option(
      '--reference <text>',
      'your unique reference for this movement of money, e.g. the number of a deposit (default: generated and printed)',
    )
    .option('--merchant <id>', 'move money only if the wallet belongs to this merchant');
  if (kind === 'fund') {
    command
      .option(
        '--approval <id>',
        'id of the approval for this funding; also give the reference of the approval with --reference',
      )
      // An approval is for one reference. With a new, generated reference, the command would request another approval.
      .hook('preAction', () => {
        const { approval, reference } = command.opts<MovementOptions>();
        if (approval !== undefined && reference === undefined)
          throw new WrongUsage(
            '--approval requires --reference, because an approval is for one reference. To see that reference, run "merchant-gateway approvals show ID"',
          );
      });
  }
  operate<MovementOptions>(command, edge, async ({ client, args, options, show, openRegistry }) => {
    const { amount, currency, environment, reason, merchant, approval } = options;
    const id = walletIdIn(args[0]);
    const reference = referenceIn(options.reference) ?? `${kind}-${ulid()}`;
    const merchantId = merchant === undefined ? undefined : idIn(merchant, 'merchant');
    // Print the generated reference before the request, because the operator needs it to retry after an interruption.
    if (options.reference === undefined)
      edge.io.err(
        `The reference is ${reference}. If the command is interrupted, retry with --reference ${reference}\n`,
      );
    const moved = client.ask({
      ...({ method: 'POST', path: ['wallets', id, kind], expects: movedSchema } as const),
      body: { amount, currency, environment, merchantId, reference, reason },
      ifUnclear:
        `The money may have been moved nevertheless. Retry with --reference ${reference}` +
        `${approval === undefined ? '' : ` --approval ${approval}`}: money that was already moved is not moved again.`,
    });
    const { data } = await moved.catch(async (error: unknown) => {
      if (!(error instanceof RejectedByApi) || error.code !== 'approval_required') throw error;
      const funding = { walletId: id.toLowerCase(), environment, currency, amount, reference };
      throw await requestApproval(await openRegistry(), funding);
    });
    const { isRepeated, balanceAfter } = data;
    const done = isRepeated
      ? `The money was already moved under this reference, and was not moved again. Directly after the movement, the balance was ${balanceAfter} (minor units).`
      : `The balance of the wallet is ${balanceAfter} ${currency} (minor units).`;
    show(data, [...entryLines(data), done]);
  });
}

/**
 * Requests an approval from the registry before a wallet is funded. Returns an error that names the approval, and says
 * how to continue.
 */
async function requestApproval(registry: AdminClient, body: object): Promise<OperatorError> {
  const { data } = await registry.ask({ method: 'POST', path: ['approvals'], body, expects: approvalSchema });
  const { reference } = data.after as { readonly reference: string };
  return new OperatorError(
    `No money was moved yet. Another administrator must approve the funding by ${data.expiresAt}, with ` +
      `"merchant-gateway approvals approve ${data.id}". After the approval, run this command again with --reference ${reference} --approval ${data.id}.`,
  );
}

/** Creates the command `wallets entries`. */
export function entriesCommand(wallets: Command, edge: AdminEdge): void {
  const command = wallets.command('entries <id>').description('list the ledger entries of a wallet, newest first');
  operate<PageOptions>(pageOptions(command), edge, async ({ client, args, options, show }) => {
    const path = ['wallets', walletIdIn(args[0]), 'entries'];
    const expects = Type.Array(entrySchema);
    const { data, page } = await client.ask({ method: 'GET', path, query: pageQuery(options), expects });
    const heading = ['AT', 'FROM', 'TO', 'AMOUNT (MINOR UNITS)', 'BALANCE', 'STATUS', 'REFERENCE', 'ACTOR', 'REASON'];
    const rows = data.map((one) => [
      ...[one.createdAt, accountOf(one, one.from), accountOf(one, one.to), `${one.amount} ${one.currency}`],
      ...[String(one.balanceAfter), one.status, one.reference, one.actor ?? '', one.reason ?? ''],
    ]);
    const last = pageLine(rows.length, 'entry', page).replaceAll('entrys', 'entries');
    show(data, [...(rows.length === 0 ? [] : tableLines(heading, rows)), last]);
  });
}

/** Creates the command `wallets accounts`. */
export function accountsCommand(wallets: Command, edge: AdminEdge): void {
  const command = wallets
    .command('accounts')
    .description(
      "show the balance of the operator's float (the account that funds wallets), the total paid out and the total of all wallets; in each environment and currency, the three sum to zero",
    );
  operate(command, edge, async ({ client, show }) => {
    const expects = Type.Array(accountSchema);
    const { data } = await client.ask({ method: 'GET', path: ['accounts'], expects });
    const rows = data.map(({ environment, currency, account, balance }) => [environment, currency, account, balance]);
    const heading = ['ENVIRONMENT', 'CURRENCY', 'ACCOUNT', 'BALANCE (MINOR UNITS)'];
    show(data, rows.length === 0 ? ['No accounts: no money has been moved yet.'] : tableLines(heading, rows));
  });
}

function referenceIn(text: string | undefined): string | undefined {
  if (text === undefined || referenceForm.test(text)) return text;
  throw new WrongUsage(
    '--reference must be 1 to 100 letters, digits and . _ : / -, begin with a letter or a digit, and contain no ' +
      'API key',
  );
}

function accountOf({ walletId }: Entry, account: string): string {
  return account === walletId ? 'wallet' : account;
}

function entryLines(entry: Entry): string[] {
  return recordLines([
    ['entry', String(entry.id)],
    ['from', entry.from],
    ['to', entry.to],
    ['amount', `${entry.amount} ${entry.currency} (minor units)`],
    ['environment', entry.environment],
    ['merchant', entry.merchantId],
    ['reference', entry.reference],
    ['reason', entry.reason ?? ''],
    ['by', entry.actor ?? ''],
    ['at', entry.createdAt],
  ]);
}
