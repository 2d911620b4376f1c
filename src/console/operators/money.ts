/**
 * The currencies whose number of decimal digits in ISO 4217 is not 2. The API uses the minor units of ISO 4217, but
 * `Intl` has the number of digits in daily use for some currencies, such as 0 for PKR.
 */
const exceptions = [
  [0, 'BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF'],
  [3, 'BHD IQD JOD KWD LYD OMR TND'],
  [4, 'CLF UYW'],
] as const;

/** Returns how many digits a currency has after the decimal point, such as 2 for NGN and 0 for JPY. */
function fractionDigits(currency: string): number {
  return exceptions.find(([, currencies]) => currencies.split(' ').includes(currency))?.[0] ?? 2;
}

const amountForm = /^(\d{1,16})(?:\.(\d+))?$/;

/**
 * Converts a typed amount into minor units. Uses no floating point, which would lose minor units.
 * @returns null if the text is not a positive amount of the currency, or exceeds `Number.MAX_SAFE_INTEGER`
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
  const digits = fractionDigits(currency);
  const format = new Intl.NumberFormat(undefined, {
    ...{ style: 'currency', currency, currencyDisplay: 'code' },
    ...{ minimumFractionDigits: digits, maximumFractionDigits: digits },
  });
  // Pass a text, which is formatted exactly; a number would lose digits of a large amount.
  return format.format(decimalText(minor, currency) as `${number}`);
}
