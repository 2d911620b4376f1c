import { eastAsianWidth } from 'get-east-asian-width';
import { printable } from './printable.js';

const gap = '  ';
/** Minimum width of a truncated cell, in terminal columns. */
const minCutWidth = 8;
const graphemes = new Intl.Segmenter('en', { granularity: 'grapheme' });

/** How a table adapts to a narrow terminal. */
export interface TableOptions {
  /**
   * Headings of the columns whose cells can be truncated. Other cells, such as ids, stay complete so that users can
   * copy them.
   */
  readonly cut?: readonly string[];
  /** Headings of the columns whose cells can wrap between words. */
  readonly wrap?: readonly string[];
  /** Width of the terminal in columns; Infinity if the output is not a terminal. */
  readonly width?: number;
}

/**
 * Returns the width of the terminal in columns. Returns Infinity if standard output is a file or a pipe, so that its
 * lines are not truncated.
 */
export function terminalWidth({ isTTY, columns }: { isTTY?: boolean; columns?: number } = process.stdout): number {
  return isTTY === true && columns !== undefined && columns > 0 ? columns : Infinity;
}

/**
 * Formats a heading and rows as a table with aligned columns. To fit the terminal, columns are truncated or wrapped as
 * far as `cut` and `wrap` allow. If that is not enough, each row becomes a record with one line per cell.
 */
export function tableLines(
  heading: readonly string[],
  rows: readonly (readonly string[])[],
  { cut = [], wrap = [], width = terminalWidth() }: TableOptions = {},
): string[] {
  const all = [heading, ...rows].map((row) => heading.map((_, column) => printable(row[column] ?? '')));
  const wanted = heading.map((_, column) => Math.max(...all.map((row) => widthOf(row[column] ?? ''))));
  const least = heading.map((name, column) => {
    const most = wanted[column] ?? 0;
    if (cut.includes(name)) return Math.min(most, Math.max(minCutWidth, widthOf(name)));
    if (!wrap.includes(name)) return most;
    return Math.max(...all.flatMap((row) => (row[column] ?? '').split(' ').map(widthOf)));
  });
  const widths = fitted(wanted, least, width - gap.length * (heading.length - 1));
  if (widths === null) return recordsOf(heading, all.slice(1));
  return all.flatMap((row) => {
    const cells = row.map((cell, column) => {
      const room = widths[column] ?? 0;
      return wrap.includes(heading[column] ?? '') ? wrapped(cell, room) : [shortened(cell, room)];
    });
    return Array.from({ length: Math.max(...cells.map(({ length }) => length)) }, (_, line) =>
      cells
        .map((lines, column) => padded(lines[line] ?? '', widths[column] ?? 0))
        .join(gap)
        .trimEnd(),
    );
  });
}

/** Formats one record, with a name and a value per line. */
export function recordLines(fields: readonly (readonly [name: string, value: string])[]): string[] {
  const width = Math.max(...fields.map(([name]) => widthOf(name)));
  return fields.map(([name, value]) => `${padded(name, width)}${gap}${printable(value)}`.trimEnd());
}

/** Returns the width of a text in terminal columns. */
export function widthOf(text: string): number {
  if (/^[\u0000-\u007f]*$/.test(text)) return text.length;
  return [...graphemes.segment(text)].reduce((sum, { segment }) => sum + graphemeWidth(segment), 0);
}

function graphemeWidth(grapheme: string): number {
  if (/^[\p{Mark}\p{Format}]+$/u.test(grapheme)) return 0;
  // A variation selector requests the emoji form of a character, such as a heart, which takes two columns.
  return grapheme.includes('\ufe0f') ? 2 : eastAsianWidth(grapheme.codePointAt(0) ?? 0);
}

/**
 * Narrows the columns until all fit. Each step takes one character from the widest column that is above its minimum
 * width. Returns the widths; null if even the minimum widths do not fit.
 */
function fitted(wanted: readonly number[], least: readonly number[], room: number): number[] | null {
  if (least.reduce((sum, one) => sum + one, 0) > room) return null;
  const widths = [...wanted];
  for (let over = widths.reduce((sum, one) => sum + one, 0) - room; over > 0; over -= 1) {
    const slack = widths.map((one, column) => (one > (least[column] ?? 0) ? one : 0));
    const widest = slack.indexOf(Math.max(...slack));
    widths[widest] = (widths[widest] ?? 0) - 1;
  }
  return widths;
}

function recordsOf(heading: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const records = rows.map((row) =>
    recordLines(heading.map((name, column) => [name, row[column] ?? ''] as const).filter(([, value]) => value !== '')),
  );
  return records.flatMap((lines, index) => (index === 0 ? lines : ['', ...lines]));
}

function shortened(text: string, room: number): string {
  if (widthOf(text) <= room) return text;
  let [kept, used] = ['', 0];
  for (const { segment } of graphemes.segment(text)) {
    used += graphemeWidth(segment);
    if (used > room - 1) break;
    kept += segment;
  }
  return `${kept}…`;
}

/** Wraps a text between words. */
function wrapped(text: string, room: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const last = lines.at(-1);
    if (last !== undefined && widthOf(`${last} ${word}`) <= room) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

function padded(text: string, width: number): string {
  return text + ' '.repeat(Math.max(0, width - widthOf(text)));
}
