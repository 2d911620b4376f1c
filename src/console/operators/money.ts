/** Returns how many digits a currency has after the decimal point, such as 2 for NGN and 0 for JPY. */
function fractionDigits(currency: string): number {
  const { maximumFractionDigits = 2 } = new Intl.NumberFormat('en', { style: 'currency', currency }).resolvedOptions();
  return maximumFractionDigits;
}

const amountForm = /^(\d{1,16})(?:\.(\d+))?$/;

/**
 * Converts a typed amount into minor units. It uses no floating point, which would lose minor units.
 * @returns null if the text is not a positive amount of the currency
 */
export function minorUnits(typed: string, currency: string): number | null {
  const [, whole = '', fraction = ''] = amountForm.exec(typed.trim()) ?? [];
  const digits = fractionDigits(currency);
  if (whole === '' || fraction.length > digits) return null;
  const minor = BigInt(`${whole}${fraction.padEnd(digits, '0')}`);
  return minor > 0n && minor <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(minor) : null;
}

/** Returns an amount of minor units as a decimal number, such as 12.50. */
export function decimalText(minor: number, currency: string): string {
  const digits = fractionDigits(currency);
  if (digits === 0) return String(minor);
  const text = String(minor).padStart(digits + 1, '0');
  return `${text.slice(0, -digits)}.${text.slice(-digits)}`;
}

/** Formats an amount of minor units with its currency, as usual in the reader's language. */
export function moneyText(minor: number, currency: string): string {
  const format = new Intl.NumberFormat(undefined, { style: 'currency', currency, currencyDisplay: 'code' });
  // Pass a text, which is formatted exactly; a number would lose digits of a large amount.
  return format.format(decimalText(minor, currency) as `${number}`);
}
