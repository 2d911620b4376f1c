import { InvalidArgumentError, Option } from 'commander';
import { uuidForm } from '../../../services/fields.js';
import { WrongUsage } from '../peer.js';

/**
 * Creates the option `--environment`.
 * @param purpose the description of the option
 */
export function environmentOption(purpose: string): Option {
  return new Option('--environment <name>', purpose).choices(['live', 'test']);
}

/** Validates a currency code: three capital letters. */
export function currencyIn(text: string): string {
  if (/^[A-Z]{3}$/.test(text)) return text;
  throw new InvalidArgumentError('Expected a code of three capital letters, such as NGN.');
}

/** Parses a positive amount in minor units, such as kobo or cents. */
export function amountIn(text: string): number {
  const amount = /^[1-9][0-9]*$/.test(text) ? Number(text) : NaN;
  if (Number.isSafeInteger(amount)) return amount;
  throw new InvalidArgumentError(
    `Expected a whole number of minor units from 1 to ${Number.MAX_SAFE_INTEGER}: 150000 is 1,500.00 NGN.`,
  );
}

/**
 * Validates the id of a wallet. The error does not repeat an invalid value, because it could be an API key.
 * @throws WrongUsage
 */
export function walletIdIn(text: string | undefined): string {
  if (text !== undefined && uuidForm.test(text)) return text.toLowerCase();
  throw new WrongUsage('the id of a wallet must be a UUID. To see the ids, run "merchant-gateway wallets list"');
}
