import { ignoredLinesWarning } from '../access-entry.js';
import type { Verdict } from '../chain-check.js';
import { type CountedList, incompleteText, type Span, type Summary } from './summary.js';
import { html, type Html, raw, table } from './html.js';
import { chartColors, reviewSections } from './review-html.js';
import type { Count } from './tally.js';

const style = `
:root { color-scheme: light dark; --ink: #1d2733; --dim: #667485; --paper: #f6f8fa; --card: #fff; --line: #d9e0e7; --good: #2f9e6e; --bad: #d6453d; --bar: #3b82c4; ${chartColors} }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf0; --dim: #93a1b0; --paper: #12181f; --card: #1a222b; --line: #2c3744 } }
* { box-sizing: border-box } body { margin: 0; padding: 2rem; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif }
main { max-width: 1180px; margin: auto } h1 { margin: 0; font-size: 1.6rem } h2 { margin: 0 0 .8rem; font-size: 1rem }
p { margin: .2rem 0; color: var(--dim) } section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem 1.3rem; margin-top: 1rem; overflow: auto }
.grid { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(360px, 100%), 1fr)) } .grid section { margin: 0 } .grid { margin-top: 1rem }
.tiles { display: flex; flex-wrap: wrap; gap: 1rem; margin-top: 1rem } .tiles section { margin: 0; flex: 1 1 150px } .tiles b { display: block; font-size: 1.7rem }
.good { color: var(--good) } .bad { color: var(--bad) } svg { display: block; width: 100%; height: auto } text { fill: var(--dim); font-size: 11px }
table { width: 100%; border-collapse: collapse } td, th { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere } th { color: var(--dim); font-weight: 500 }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap } .bar { height: 8px; border-radius: 4px; background: var(--bar); min-width: 2px }
`;

/**
 * Formats a summary as one self-contained HTML page, without scripts or external resources. Every value is escaped.
 * @param verdict the result of verifying the lines; null if they were not verified
 */
export function summaryHtml(summary: Summary, verdict: Verdict | null, title: string): string {
  const { requests, accepted } = summary;
  const bars = (name: string, list: CountedList): Html => barsOf(name, summary[list], summary.distinct[list]);
  const newAddresses = summary.newAddresses
    .toReversed()
    .map(({ at, keyId, merchant, address, code }) => [at, keyId, merchant ?? '', address, code]);
  const page = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta http-equiv="content-security-policy" content="default-src 'none'; style-src 'unsafe-inline'" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>${title}</title>
        <style>
          ${raw(style)}
        </style>
      </head>
      <body>
        <main>
          <h1>${title}</h1>
          <p>${summary.from === null ? 'No requests' : `${summary.from} to ${summary.to ?? ''}`}</p>
          ${summary.leftOutLines === 0 ? '' : html`<p class="bad">${ignoredLinesWarning(summary.leftOutLines)}</p>`}
          ${summary.incomplete.length === 0 ? '' : html`<p class="bad">${incompleteText(summary)}</p>`}
          <div class="tiles">
            ${tile('requests', requests)} ${tile('accepted', accepted, 'good')}
            ${tile('not accepted', requests - accepted, 'bad')}
            ${tile('exposed keys', summary.distinct.exposedKeys, 'bad')}
            ${tile('new addresses of keys', summary.newAddressCount)}
          </div>
          ${reviewSections(summary, verdict, bars('Keys sent over plain HTTP or through Tor', 'exposedKeys'))}
          <section>
            <h2>Requests per ${spanText(summary.spanMinutes)}</h2>
            ${chart(summary.spans)}
            <p><span class="good">■</span> accepted <span class="bad">■</span> not accepted</p>
          </section>
          <div class="grid">
            ${bars('Why requests were not accepted', 'codes')} ${bars('Merchants, accepted', 'merchants')}
            ${bars('Merchants, not accepted', 'refusedMerchants')} ${bars('Addresses', 'addresses')}
            ${bars('Addresses, not accepted', 'refusedAddresses')} ${bars('Countries', 'countries')}
          </div>
          <section>
            <h2>Keys that were used from a new address</h2>
            ${table(['when', 'keyId', 'merchant', 'address', 'code'], newAddresses)}
          </section>
        </main>
      </body>
    </html>`;
  return page.html;
}

function tile(name: string, count: number, kind = ''): Html {
  return html`<section><b class="${kind}">${count.toLocaleString('en')}</b>${name}</section>`;
}

/**
 * Returns a bar chart of the most frequent values.
 * @param distinct the number of all values, including those not listed
 */
function barsOf(title: string, counts: readonly Count[], distinct: number): Html {
  const most = Math.max(1, ...counts.map(({ count }) => count));
  const rows = counts.map(
    ({ value, count }) =>
      html`<tr>
        <td>
          ${value}
          <div class="bar" style="width: ${(100 * count) / most}%"></div>
        </td>
        <td class="number">${count.toLocaleString('en')}</td>
      </tr>`,
  );
  return html`<section>
    <h2>${title}</h2>
    ${
      counts.length === 0
        ? html`<p>None.</p>`
        : html`<table>
              ${rows}
            </table>
            ${distinct > counts.length ? html`<p>and ${(distinct - counts.length).toLocaleString('en')} more</p>` : ''}`
    }
  </section>`;
}

const chartWidth = 1100;
const chartHeight = 220;
const margin = { left: 48, top: 10, bottom: 24 };

function chart(spans: readonly Span[]): Html {
  if (spans.length === 0) return html`<p>No requests.</p>`;
  const most = Math.max(1, ...spans.map(({ accepted, refused }) => accepted + refused));
  const width = (chartWidth - margin.left) / spans.length;
  const height = chartHeight - margin.top - margin.bottom;
  const bar = (x: number, from: number, count: number, kind: string): Html => {
    const y = margin.top + height * (1 - (from + count) / most);
    const wide = Math.max(1, width - 1);
    return html`<rect
      x="${x.toFixed(1)}"
      y="${y.toFixed(1)}"
      width="${wide.toFixed(1)}"
      height="${((height * count) / most).toFixed(1)}"
      fill="var(--${kind})"
    />`;
  };
  const label = (at: number, anchor: string): Html =>
    html`<text
      x="${(margin.left + at * (chartWidth - margin.left)).toFixed(0)}"
      y="${chartHeight - 6}"
      text-anchor="${anchor}"
    >
      ${(spans[Math.round(at * (spans.length - 1))]?.from ?? '').slice(0, 16).replace('T', ' ')}
    </text>`;
  return html`<svg viewBox="0 0 ${chartWidth} ${chartHeight}" role="img" aria-label="Requests over time">
    <text x="${margin.left - 6}" y="${margin.top + 8}" text-anchor="end">${most.toLocaleString('en')}</text>
    <text x="${margin.left - 6}" y="${margin.top + height}" text-anchor="end">0</text>
    <line
      x1="${margin.left}"
      x2="${chartWidth}"
      y1="${margin.top + height}"
      y2="${margin.top + height}"
      stroke="var(--line)"
    />
    ${spans.map(({ from, accepted, refused }, index) => {
      const x = margin.left + index * width;
      return html`<g>
        <title>${from}: ${accepted} accepted, ${refused} not accepted</title>
        ${bar(x, 0, accepted, 'good')} ${bar(x, accepted, refused, 'bad')}
      </g>`;
    })}
    ${label(0, 'start')} ${label(0.5, 'middle')} ${label(1, 'end')}
  </svg>`;
}

/** Formats a length of time, such as `5 minutes` or `6 hours`. */
function spanText(minutes: number): string {
  const [count, unit] =
    minutes % 1440 === 0 ? [minutes / 1440, 'day'] : minutes % 60 === 0 ? [minutes / 60, 'hour'] : [minutes, 'minute'];
  return count === 1 ? unit : `${count} ${unit}s`;
}
