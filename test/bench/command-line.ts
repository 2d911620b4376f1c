import { parseArgs } from 'node:util';

/** The options of a benchmark, by name, with their defaults; `--json` always exists. */
export type Defaults = Readonly<Record<string, string>>;

/** Parses options such as `--keys 1000`; any other argument ends the process with exit status 2. */
export function optionsOf<Names extends Defaults>(
  defaults: Names,
): { [Name in keyof Names]: string } & { json: boolean } {
  try {
    const { values } = parseArgs({
      options: {
        json: { type: 'boolean', default: false },
        ...Object.fromEntries(
          Object.entries(defaults).map(([name, value]) => [name, { type: 'string' as const, default: value }]),
        ),
      },
    });
    return values as { [Name in keyof Names]: string } & { json: boolean };
  } catch (error) {
    const known = Object.entries(defaults).map(([name, value]) => `--${name} (${value || 'none'})`);
    process.stderr.write(`${(error as Error).message}\nKnown: ${known.join(', ')}, --json\n`);
    process.exit(2);
  }
}

/** Parses a whole number from 1; any other text ends the process with exit status 2. */
export function numberIn(name: string, text: string): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number > 0) return number;
  process.stderr.write(`--${name} must be a whole number from 1.\n`);
  process.exit(2);
}

/** Reports progress on standard error. */
export function say(text: string): void {
  process.stderr.write(`${text}\n`);
}
