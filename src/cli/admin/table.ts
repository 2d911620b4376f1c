import { printable } from './printable.js';

const gap = '  ';

/** The lines of a table: its heading, and one line a row, in aligned columns. */
export function tableLines(heading: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const all = [heading, ...rows].map((row) => row.map(printable));
  const widths = heading.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join(gap)
      .trimEnd(),
  );
}

/** The lines of one record: a name and a value each. */
export function recordLines(fields: readonly (readonly [name: string, value: string])[]): string[] {
  const width = Math.max(...fields.map(([name]) => name.length));
  return fields.map(([name, value]) => `${name.padEnd(width)}${gap}${printable(value)}`);
}
