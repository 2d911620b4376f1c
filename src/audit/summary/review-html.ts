import type { Summary } from './summary.js';
import { type RunProof, type Verdict, verdictText } from '../chain-check.js';
import { positionText } from '../finding.js';
import { html, type Html, table } from './html.js';
import { unusualRule } from './unusual-merchants.js';

const colors = ['#d6453d', '#d98a1f', '#8e5bb5', '#3b82c4', '#2f9e6e', '#b0568a', '#7b8794'];

/** The colors of the chart's series, as CSS custom properties. */
export const chartColors = colors.map((color, index) => `--series-${index}: ${color}`).join('; ');

/**
 * Returns the sections that an auditor should read first.
 * @param exposedKeys the section about keys that were sent over plain HTTP or Tor; it follows the denials
 */
export function reviewSections(summary: Summary, verdict: Verdict | null, exposedKeys: Html): readonly Html[] {
  return [
    verdict === null ? unverified : proof(verdict),
    silences(summary),
    denials(summary),
    exposedKeys,
    unusualMerchants(summary),
  ];
}

const unverified = html`<section>
  <h2>Proof</h2>
  <p class="bad">
    Not verified: lines may have been changed, removed or added. Create this page with --verify, or run
    "merchant-gateway audit verify".
  </p>
</section>`;

const mostRows = 50;

function proof(verdict: Verdict): Html {
  const { intact, findings, findingCount, notes, proofs } = verdict;
  const found = findings.slice(0, mostRows).map((one) => [positionText(one), one.kind, one.message]);
  const runs = (proofs ?? []).toSorted((a, b) => rankOf(a) - rankOf(b) || b.unsigned - a.unsigned);
  const rows = runs
    .slice(0, mostRows)
    .map((run) => [
      run.run,
      run.name ?? '',
      states[rankOf(run)] ?? '',
      run.signedAt === null ? '' : `1 to ${run.signedTo}, ${isoOf(run.signedAt)}`,
      run.witnessedAt === null ? '' : `1 to ${run.witnessedTo}, ${isoOf(run.witnessedAt)}`,
      run.unsigned.toLocaleString('en'),
    ]);
  return html`<section>
    <h2>Proof</h2>
    <p class="${intact ? 'good' : 'bad'}">${verdictText(verdict)}</p>
    <h2>Gaps and other findings</h2>
    ${table(['line', 'kind', 'finding'], found)} ${moreOf(findingCount - found.length)}
    <ul>
      ${notes.slice(0, mostRows).map((note) => html`<li>${note}</li>`)}
    </ul>
    ${moreOf(notes.length - mostRows)}
    <h2>Log runs</h2>
    <p>A run is the part of a log that one process wrote into one file.</p>
    ${table(['run', 'signed by', 'proof', 'signed lines', 'lines with a receipt', 'unsigned lines'], rows)}
    ${moreOf(runs.length - rows.length)}
  </section>`;
}

/**
 * How well the gateway's signatures and the registry's receipts cover the lines of a gateway process, from the weakest
 * proof to the strongest.
 */
const states = [
  'only the hash chain',
  'partly signed',
  'signed',
  'registry receipts for some lines',
  'registry receipts for all lines',
];

function rankOf({ signedAt, signedTo, unsigned, witnessedAt, witnessedTo }: RunProof): number {
  if (signedAt === null) return 0;
  const isWhole = unsigned === 0;
  if (witnessedAt === null) return isWhole ? 2 : 1;
  return isWhole && witnessedTo === signedTo ? 4 : 3;
}

function isoOf(at: number): string {
  return new Date(at).toISOString();
}

function moreOf(count: number): Html {
  return count > 0
    ? html`<p>and ${count.toLocaleString('en')} more: "merchant-gateway audit verify --json" lists all</p>`
    : html``;
}

function silences({ silences }: Summary): Html {
  const rows = silences.map(({ from, to, minutes }) => [from, to, minutes.toLocaleString('en')]);
  return html`<section>
    <h2>Longest times without a request</h2>
    <p>Only "merchant-gateway audit verify" can detect whether lines are missing in these intervals.</p>
    ${table(['from the minute', 'to the minute', 'minutes between'], rows)}
  </section>`;
}

function unusualMerchants({ unusualMerchants }: Summary): Html {
  const rows = unusualMerchants.map(({ merchant, requests, refused, share, shareOfOthers, reasons }) => [
    merchant,
    refused.toLocaleString('en'),
    requests.toLocaleString('en'),
    percent(share),
    percent(shareOfOthers),
    reasons.map(({ value, count }) => `${value} ${count.toLocaleString('en')}`).join(', '),
  ]);
  return html`<section>
    <h2>Merchants with unusual refusals</h2>
    <p>${unusualRule}</p>
    ${table(['merchant', 'refused', 'of requests', 'share', 'share of others', 'main reasons'], rows)}
  </section>`;
}

function denials({ denials: { series, spans } }: Summary): Html {
  const heading = html`<h2>Refusals by reason over time</h2>`;
  if (series.length === 0)
    return html`<section>
      ${heading}
      <p>None.</p>
    </section>`;
  const legend = series.map(
    (code, index) => html`<span><span style="color: var(--series-${index})">■</span> ${code} </span>`,
  );
  const busy = spans.filter(({ counts }) => counts.some((count) => count > 0));
  const rows = busy.map(({ from, counts }) => [from, ...counts.map((count) => count.toLocaleString('en'))]);
  return html`<section>
    ${heading} ${stack(series, spans)}
    <p>${legend}</p>
    <details>
      <summary>The same as a table</summary>
      ${table(['from', ...series], rows)}
    </details>
  </section>`;
}

const width = 1100;
const height = 180;

function stack(series: readonly string[], spans: Summary['denials']['spans']): Html {
  const sums = spans.map(({ counts }) => counts.reduce((sum, count) => sum + count, 0));
  const most = Math.max(1, ...sums);
  const each = width / spans.length;
  const bars = spans.map(({ from, counts }, at) => {
    let below = 0;
    const parts = counts.flatMap((count, index) => {
      if (count === 0) return [];
      below += count;
      return [
        html`<rect
          x="${(at * each).toFixed(1)}"
          y="${(height * (1 - below / most)).toFixed(1)}"
          width="${Math.max(1, each - 1).toFixed(1)}"
          height="${((height * count) / most).toFixed(1)}"
          fill="var(--series-${index})"
        />`,
      ];
    });
    const title = series.map((code, index) => `${code} ${counts[index] ?? 0}`).join(', ');
    return html`<g>
      <title>${from}: ${title}</title>
      ${parts}
    </g>`;
  });
  return html`<svg
      viewBox="0 0 ${width} ${height}"
      role="img"
      aria-label="Refusals by reason over time, at most ${most} per time span"
    >
      ${bars}
    </svg>
    <p>
      At most ${most.toLocaleString('en')} per time span, from ${spans[0]?.from ?? ''} to ${spans.at(-1)?.from ?? ''}.
    </p>`;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}
