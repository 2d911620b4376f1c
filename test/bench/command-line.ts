import { parseArgs } from 'node:util';

/** What a benchmark may be told, by name, with its default; and `--json`. */
export type Defaults = Readonly<Record<string, string>>;

/** Reads options such as `--keys 1000`; whatever else is given ends the process with 2. */
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

/** A whole number from 1, or the end of the process. */
export function numberIn(name: string, text: string): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number > 0) return number;
  process.stderr.write(`--${name} must be a whole number from 1.\n`);
  process.exit(2);
}

/** Says how far it is, on standard error. */
export function say(text: string): void {
  process.stderr.write(`${text}\n`);
}
