import { subjects } from '../subjects/index.js';
import type { Measured } from './measure.js';
import { scenarios } from './scenarios.js';
import { ratiosOf, spreadOf, type Spread } from './statistics.js';
import type { Judged } from './targets.js';

/** All that a run has found. */
export interface Results {
  readonly machine: Readonly<Record<string, string | number>>;
  readonly extent: Readonly<Record<string, number>>;
  /** Why which subjects were left out. */
  readonly leftOut: Readonly<Record<string, string>>;
  readonly scenarios: readonly { readonly name: string; readonly measured: readonly Measured[] }[];
  readonly targets: readonly Judged[];
}

/** A figure for people: three digits of it count. */
function shortly(figure: number): string {
  return Number.isNaN(figure) ? '-' : figure >= 99.95 ? figure.toFixed(0) : figure.toFixed(figure >= 9.995 ? 1 : 2);
}

function spreadText({ median, min, max }: Spread): string {
  return `${shortly(median)} (${shortly(min)} to ${shortly(max)})`;
}

/** For people: the subject's title. */
function titleOf(name: string): string {
  return subjects.find((one) => one.name === name)?.title ?? name;
}

/** The figures as tables in Markdown: one for each scenario, and that of the targets. */
export function tables(results: Results): string {
  const parts = results.scenarios.map(({ name, measured }) => {
    const title = scenarios.find((one) => one.name === name)?.title ?? name;
    return `### ${title}\n\n${scenarioTable(measured)}`;
  });
  if (results.targets.length > 0) parts.push(`### Targets\n\n${targetTable(results.targets)}`);
  return parts.join('\n\n');
}

function scenarioTable(measured: readonly Measured[]): string {
  const hasLatency = measured.some(({ rounds }) => rounds.some(({ latency }) => latency !== null));
  const first = measured[0]?.rounds.map(({ cpu }) => cpu) ?? [];
  const rows = measured.map(({ subject, rounds }) => {
    const cpu = rounds.map((round) => round.cpu);
    const latency = (['p50', 'p99', 'p999'] as const).map((which) =>
      spreadText(spreadOf(rounds.map((round) => round.latency?.[which] ?? NaN))),
    );
    return [
      ...[titleOf(subject), spreadText(spreadOf(cpu)), spreadText(ratiosOf(first, cpu))],
      ...[shortly(spreadOf(rounds.map(({ perSecond }) => perSecond)).median)],
      ...[shortly(spreadOf(rounds.map(({ residentMebibytes }) => residentMebibytes)).max)],
      ...(hasLatency ? latency : []),
    ];
  });
  const latencyHeads = hasLatency ? ['ms p50', 'ms p99', 'ms p99.9'] : [];
  const heads = ['subject', 'CPU µs a request', 'the first against it', 'requests a second', 'MiB resident'];
  return table([...heads, ...latencyHeads], rows);
}

function targetTable(targets: readonly Judged[]): string {
  const rows = targets.map(({ scenario, subject, figure, against, atMost, stretch, measured, holds }) => [
    ...[scenario, titleOf(subject), figure, against === null ? '(MiB)' : titleOf(against)],
    ...[spreadText(measured), `${atMost}`, stretch === null ? '' : `${stretch}`, holds ? 'yes' : '**no**'],
  ]);
  return table(['scenario', 'of', 'figure', 'against', 'measured', 'at most', 'stretch', 'holds'], rows);
}

function table(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  return [heads, heads.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');
}
