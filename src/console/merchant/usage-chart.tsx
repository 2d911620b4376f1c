import type { ReactNode } from 'react';
import type { UsageRow } from '../api';
import { texts } from '../texts';

const number = new Intl.NumberFormat();
const [width, height] = [800, 140];

/** A bar of the chart: the requests of one hour or day. */
interface Bar {
  readonly from: number;
  readonly accepted: number;
  readonly refused: number;
}

/**
 * Returns a bar for each of the last `count` hours or days, oldest first. The API omits hours and days without a
 * request, so they get a bar with zeros here.
 */
function barsOf(rows: readonly UsageRow[], unit: number, count: number): Bar[] {
  const found = new Map(rows.map((row) => [Date.parse(row.from ?? ''), row]));
  const last = Math.floor(Date.now() / unit) * unit;
  return Array.from({ length: count }, (_, index) => {
    const from = last - (count - 1 - index) * unit;
    const { accepted = 0, refused = 0 } = found.get(from) ?? {};
    return { from, accepted, refused };
  });
}

/**
 * A chart of accepted and refused requests, oldest first. Screen readers get only its title, because a table on the
 * page has the same numbers. Refused requests are hatched, because not every reader can distinguish the colours.
 */
export function UsageChart({
  rows,
  label,
  unit,
  count,
}: {
  readonly rows: readonly UsageRow[];
  readonly label: string;
  /** Length of the hour or day that a bar stands for, in milliseconds. */
  readonly unit: number;
  /** Number of bars. */
  readonly count: number;
}): ReactNode {
  const most = Math.max(1, ...rows.map(({ requests }) => requests));
  const step = width / count;
  const bars = barsOf(rows, unit, count).map(({ from, accepted, refused }, index) => {
    const [good, bad] = [(accepted / most) * height, (refused / most) * height];
    const box = { x: index * step + step * 0.1, width: Math.max(1, step * 0.8) };
    return (
      <g key={from}>
        <rect {...box} y={height - good} height={good} className="accepted" />
        <rect {...box} y={height - good - bad} height={bad} className="refused" />
      </g>
    );
  });
  return (
    <figure className="chart">
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
        <defs>
          <pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="6" height="6" className="ground" />
            <rect width="3" height="6" className="line" />
          </pattern>
        </defs>
        {bars}
      </svg>
      <figcaption className="help">
        <span className="sample accepted" aria-hidden="true" /> {texts.activity.accepted}{' '}
        <span className="sample refused" aria-hidden="true" /> {texts.activity.refused}{' '}
        {texts.activity.most(number.format(most))}
      </figcaption>
    </figure>
  );
}
