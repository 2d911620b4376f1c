import type { UsageRow } from '../../../registry/usage/schema.js';
import { tableLines } from '../table.js';

/** How to draw a chart. */
interface ChartOptions {
  readonly by: 'hour' | 'day';
  /** Start of the period, ISO 8601. */
  readonly since: string;
  /** End of the period, in milliseconds since 1970. */
  readonly now: number;
  /** Width of the terminal in columns. Infinity if the output is not a terminal; such a chart has no bars. */
  readonly width: number;
}

const units = { hour: 3_600_000, day: 86_400_000 } as const;
/**
 * How many characters of an ISO 8601 time a row shows, such as 2026-01-31T12:00 for an hour and 2026-01-31 for a day.
 */
const timeLengths = { hour: 16, day: 10 } as const;
const shortestBar = 10;
const longestBar = 60;

/**
 * Formats requests per hour or day as a table, oldest first. If the terminal is wide enough, each row has a bar of
 * accepted and refused requests.
 */
export function chartLines(rows: readonly UsageRow[], { by, since, now, width }: ChartOptions): string[] {
  const unit = units[by];
  const counts = new Map(rows.map((row) => [Date.parse(row.from ?? ''), row]));
  const first = Math.floor(Date.parse(since) / unit) * unit;
  const times = Array.from({ length: Math.floor((now - first) / unit) + 1 }, (_, index) => first + index * unit);
  const cells = times.map((time) => {
    const { accepted = 0, refused = 0 } = counts.get(time) ?? {};
    return { text: new Date(time).toISOString().slice(0, timeLengths[by]), accepted, refused };
  });
  const heading = [`${by.toUpperCase()} (UTC)`, 'ACCEPTED', 'REFUSED'];
  const table = (bars: readonly string[] | null): string[] =>
    tableLines(
      bars === null ? heading : [...heading, ''],
      cells.map(({ text, accepted, refused }, index) => [text, String(accepted), String(refused), bars?.[index] ?? '']),
      { width: Infinity },
    );
  const plain = table(null);
  const gap = 2;
  const room = Math.min(longestBar, width - Math.max(...plain.map(({ length }) => length)) - gap);
  if (width === Infinity || room < shortestBar) return plain;
  const most = Math.max(1, ...cells.map(({ accepted, refused }) => accepted + refused));
  return table(cells.map(({ accepted, refused }) => barOf(accepted, refused, room / most)));
}

/** Draws a bar. A count above 0 takes at least one column, so that even a single refusal is visible. */
function barOf(accepted: number, refused: number, scale: number): string {
  const columns = (count: number): number => (count === 0 ? 0 : Math.max(1, Math.round(count * scale)));
  const total = columns(accepted + refused);
  const ofRefused = Math.min(columns(refused), Math.max(1, total - (accepted === 0 ? 0 : 1)));
  const shown = refused === 0 ? 0 : ofRefused;
  return '█'.repeat(Math.max(accepted === 0 ? 0 : 1, total - shown)) + '░'.repeat(shown);
}
