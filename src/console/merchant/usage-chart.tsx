import type { ReactNode } from 'react';
import type { UsageRow } from '../api';
import { texts } from '../texts';

const number = new Intl.NumberFormat();
const [width, height] = [800, 140];

/**
 * A chart of accepted and refused requests, oldest first. The table below it has the same numbers, so screen readers
 * get only its title. Refused requests are hatched, because colours alone do not tell them apart.
 */
export function UsageChart({ rows, label }: { readonly rows: readonly UsageRow[]; readonly label: string }): ReactNode {
  const most = Math.max(1, ...rows.map(({ requests }) => requests));
  const step = width / Math.max(1, rows.length);
  const bars = rows.toReversed().map(({ from, accepted, refused }, index) => {
    const [good, bad] = [(accepted / most) * height, (refused / most) * height];
    const box = { x: index * step + step * 0.1, width: Math.max(1, step * 0.8) };
    return (
      <g key={from ?? index}>
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
