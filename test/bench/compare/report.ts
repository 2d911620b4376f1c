import { subjects } from '../subjects/index.js';
import type { Round } from './contender.js';
import type { Measured } from './measure.js';
import { formatNumber } from './plot.js';
import { scenarios } from './scenarios.js';
import { ratiosOf, spreadOf, type Spread } from './statistics.js';
import type { Judged } from './targets.js';

/** All results of a run. */
export interface Results {
  readonly machine: Readonly<Record<string, string | number>>;
  readonly extent: Readonly<Record<string, number>>;
  /** The omitted subjects, each with the reason. */
  readonly leftOut: Readonly<Record<string, string>>;
  readonly scenarios: readonly { readonly name: string; readonly measured: readonly Measured[] }[];
  readonly targets: readonly Judged[];
}

function spreadText({ median, min, max }: Spread): string {
  return `${formatNumber(median)} (${formatNumber(min)} to ${formatNumber(max)})`;
}

/** The title of a subject. */
export function titleOf(name: string): string {
  return subjects.find((one) => one.name === name)?.title ?? name;
}

/** The title of a subject; for the gateway only its variant, such as "everything on". */
function variantOf(name: string): string {
  return titleOf(name).replace(/^merchant-gateway, /, '');
}

/** The title of a scenario. */
export function scenarioTitle(name: string): string {
  return scenarios.find((one) => one.name === name)?.title ?? name;
}

/** The table of targets and one table for each scenario, in Markdown. */
export function tables(results: Results): string {
  const parts = results.targets.length > 0 ? [targetSection(results)] : [];
  return [...parts, scenarioSections(results)].join('\n\n');
}

/** A section with the table of targets, in Markdown. */
export function targetSection({ targets }: Results): string {
  return `### Targets\n\n${targetTable(targets)}`;
}

/**
 * A section with a table for each scenario, in Markdown.
 * @param image returns the text above the table of a scenario, or an empty text
 */
export function scenarioSections(results: Results, image: (scenario: string) => string = () => ''): string {
  return results.scenarios
    .map(({ name, measured }) => `### ${scenarioTitle(name)}\n\n${image(name)}${scenarioTable(measured)}`)
    .join('\n\n');
}

function scenarioTable(measured: readonly Measured[]): string {
  const hasLatency = measured.some(({ rounds }) => rounds.some(({ latency }) => latency !== null));
  const first = measured[0]?.rounds.map(({ cpu }) => cpu) ?? [];
  const rows = measured.map(({ subject, rounds, failure }) => {
    if (failure !== null) return [titleOf(subject), `dropped out: ${failure}`];
    const cpu = rounds.map((round) => round.cpu);
    const latency = (['p50', 'p99', 'p999'] as const).map((which) =>
      spreadText(spreadOf(rounds.map((round) => round.latency?.[which] ?? NaN))),
    );
    return [
      ...[titleOf(subject), spreadText(spreadOf(cpu)), spreadText(ratiosOf(first, cpu))],
      ...[formatNumber(spreadOf(rounds.map(({ perSecond }) => perSecond)).median)],
      ...[memoryText(rounds)],
      ...(hasLatency ? latency : []),
    ];
  });
  const latencyHeads = hasLatency ? ['ms p50', 'ms p99', 'ms p99.9'] : [];
  const heads = ['subject', 'CPU µs per request', 'first row ÷ this row', 'requests per second', 'MB resident'];
  return table([...heads, ...latencyHeads], rows);
}

/** The memory in the first and in the last round, so that growth is visible. Also the maximum of all rounds. */
function memoryText(rounds: readonly Round[]): string {
  const megabytes = rounds.map(({ residentMegabytes }) => residentMegabytes);
  return `${formatNumber(megabytes[0] ?? NaN)} … ${formatNumber(megabytes.at(-1) ?? NaN)}, at most ${formatNumber(spreadOf(megabytes).max)}`;
}

function targetTable(targets: readonly Judged[]): string {
  const rows = targets.map(({ scenario, subject, figure: what, against, atMost, stretch, measured, holds }) => [
    ...[scenario, variantOf(subject), what, against === null ? '(MB)' : variantOf(against)],
    ...[spreadText(measured), `${atMost}`, stretch === null ? '' : `${stretch}`, holds ? 'yes' : '**no**'],
  ]);
  return table(['scenario', 'of', 'metric', 'against', 'measured', 'at most', 'stretch', 'met'], rows);
}

function table(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const whole = rows.map((row) => heads.map((_, index) => row[index] ?? ''));
  return [heads, heads.map(() => '---'), ...whole].map((row) => `| ${row.join(' | ')} |`).join('\n');
}
