import type { Spread } from './statistics.js';

/**
 * One bar of a plot. The length of the bar is the median of the rounds. A thin line through its end runs from the
 * lowest round to the highest.
 */
export interface Bar {
  readonly label: string;
  readonly value: Spread;
  /** Whether the bar has the highlight colour, because it belongs to this gateway. */
  readonly isOurs: boolean;
}

/** A bar plot with its title and unit. */
export interface Plot {
  readonly title: string;
  readonly unit: string;
  readonly bars: readonly Bar[];
}

const width = 760;
const left = 290;
const right = 70;
const top = 44;
const step = 26;
const thick = 16;

const style = `
svg { color-scheme: light dark; --ink: #1d2733; --dim: #667485; --ours: #2f9e6e; --bar: #3b82c4; --line: #1d2733; --paper: #fff }
@media (prefers-color-scheme: dark) { svg { --ink: #e6ebf0; --dim: #93a1b0; --line: #e6ebf0; --paper: #12181f } }
text { font: 13px system-ui, sans-serif; fill: var(--ink) } .dim { fill: var(--dim) } .title { font-weight: 600 }
`;

/** Draws bars as a self-contained SVG image. */
export function plotSvg({ title, unit, bars }: Plot): string {
  const most = Math.max(...bars.map(({ value }) => value.max)) || 1;
  const x = (value: number): string => (left + ((width - left - right) * value) / most).toFixed(1);
  const height = top + bars.length * step + 10;
  const rows = bars.map(({ label, value, isOurs }, index) => {
    const y = top + index * step;
    const middle = y + thick / 2;
    return [
      `<text x="${left - 8}" y="${middle + 4}" text-anchor="end">${escaped(label)}</text>`,
      `<rect x="${left}" y="${y}" width="${(Number(x(value.median)) - left).toFixed(1)}" height="${thick}" rx="2" fill="var(--${isOurs ? 'ours' : 'bar'})"/>`,
      `<path d="M${x(value.min)} ${middle}H${x(value.max)}" stroke="var(--line)"/>`,
      `<text class="dim" x="${Number(x(value.max)) + 6}" y="${middle + 4}">${formatNumber(value.median)}</text>`,
    ].join('\n');
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" role="img" aria-label="${escaped(title)}">
<style>${style}</style>
<rect width="100%" height="100%" fill="var(--paper)"/>
<text class="title" x="8" y="20">${escaped(title)}</text>
<text class="dim" x="${width - 8}" y="20" text-anchor="end">${escaped(unit)}; line: least to greatest round</text>
${rows.join('\n')}
</svg>
`;
}

/** Formats a figure with two decimals below 10, one below 100, and none from 100. NaN becomes `-`. */
export function formatNumber(value: number): string {
  return Number.isNaN(value) ? '-' : value >= 99.95 ? value.toFixed(0) : value.toFixed(value >= 9.995 ? 1 : 2);
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}
