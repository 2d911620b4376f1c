import { build } from 'esbuild';
import t from 'tap';

/** The functions of `money.ts`. The test bundles this file alone, because the console's bundle does not export them. */
interface Money {
  readonly minorUnits: (typed: string, currency: string) => number | null;
  readonly decimalText: (minor: number, currency: string) => string;
  readonly moneyText: (minor: number, currency: string) => string;
}

const { outputFiles } = await build({
  ...{ entryPoints: ['src/console/operators/money.ts'], format: 'esm', write: false, logLevel: 'silent' },
});
const source = outputFiles[0]?.text ?? '';
const { minorUnits, decimalText, moneyText } = (await import(
  `data:text/javascript,${encodeURIComponent(source)}`
)) as Money;

t.test('a typed amount becomes minor units exactly', (t) => {
  for (const [typed, currency, minor] of [
    ['1500.50', 'NGN', 150_050],
    ['1500.5', 'NGN', 150_050],
    [' 1500 ', 'NGN', 150_000],
    ['0.01', 'NGN', 1],
    ['0.29', 'USD', 29],
    ['1.005', 'KWD', 1_005],
    ['1500', 'JPY', 1_500],
    // For PKR, HUF and IQD, browsers use another number of decimal places than ISO 4217.
    ['1500.50', 'PKR', 150_050],
    ['1500', 'HUF', 150_000],
    ['1.5', 'IQD', 1_500],
    ['1', 'CLF', 10_000],
    ['90071992547409.91', 'NGN', Number.MAX_SAFE_INTEGER],
    ['35184372088832.01', 'USD', 3_518_437_208_883_201],
  ] as const)
    t.equal(minorUnits(typed, currency), minor, `${typed} ${currency}`);
  for (const [typed, currency] of [
    ...['', '0', '0.00', '-1', '+1', '1e3', '0x10', '1,500', '1.500,00', '1.', '.5', '1.001', '1 000', '١', 'NaN'].map(
      (wrong) => [wrong, 'NGN'] as const,
    ),
    ...[['1.5', 'JPY'] as const, ['90071992547409.92', 'NGN'] as const, ['9'.repeat(17), 'NGN'] as const],
  ])
    t.equal(minorUnits(typed, currency), null, `${typed} ${currency}`);
  t.end();
});

t.test('an amount is shown with all of its digits', (t) => {
  t.equal(decimalText(1, 'NGN'), '0.01');
  t.equal(decimalText(150_050, 'NGN'), '1500.50');
  t.equal(decimalText(1_500, 'JPY'), '1500');
  t.equal(moneyText(Number.MAX_SAFE_INTEGER, 'NGN').replaceAll(/\D/g, ''), '9007199254740991');
  t.match(moneyText(150_050, 'NGN'), /NGN/);
  t.equal(moneyText(150_050, 'PKR').replaceAll(/\D/g, ''), '150050');
  t.equal(moneyText(1_500, 'IQD').replaceAll(/\D/g, ''), '1500', 'IQD 1.500');
  for (const currency of ['NGN', 'JPY', 'KWD', 'PKR', 'CLF'])
    for (const minor of [1, 10, 999, 123_456_789]) t.equal(minorUnits(decimalText(minor, currency), currency), minor);
  t.end();
});
