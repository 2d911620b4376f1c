import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { plotSvg, type Bar } from './plot.js';
import { scenarioSections, scenarioTitle, targetSection, titleOf, type Results } from './report.js';
import { spreadOf } from './statistics.js';

const folder = 'docs/benchmarks';
const [page, data] = ['docs/benchmarks.md', `${folder}/tables.md`];
const [begin, end] = ['<!-- written by npm run bench -- --docs -->', '<!-- end of what the bench writes -->'];

/** Draws the plots. Replaces the targets in docs/benchmarks.md and the tables in docs/benchmarks/tables.md. */
export function writePage(results: Results): void {
  for (const name of readdirSync(folder)) if (name.endsWith('.svg')) rmSync(`${folder}/${name}`);
  for (const scenario of results.scenarios) writeFileSync(`${folder}/${scenario.name}.svg`, plotOf(scenario));
  const { node, cpu, cpus, date } = results.machine;
  const about = `Node ${String(node)}, ${String(cpus)} × ${String(cpu)}, ${String(date).slice(0, 10)}; ${results.extent.rounds} rounds of ${results.extent.seconds} s.`;
  const image = (name: string): string => `![${scenarioTitle(name)}](${name}.svg)\n\n`;
  replaceIn(page, [about, targetSection(results)]);
  replaceIn(data, [about, scenarioSections(results, image)]);
}

/** Replaces the part of a file that an earlier run wrote, between the two markers, with `parts`. */
function replaceIn(file: string, parts: readonly string[]): void {
  const [before = '', rest] = readFileSync(file, 'utf8').split(begin);
  const after = rest?.split(end)[1];
  if (after === undefined) throw new Error(`${file} lacks the markers ${begin} and ${end}`);
  writeFileSync(file, before + [begin, ...parts, end].join('\n\n') + after);
}

/** The plot of a scenario: CPU time per request or, at a fixed rate, the latency of the response. */
function plotOf({ name, measured }: Results['scenarios'][number]): string {
  const isTimed = measured.some(({ rounds }) => rounds.some(({ latency }) => latency !== null));
  const standing = measured.filter(({ failure }) => failure === null);
  const bars = standing.flatMap(({ subject, rounds }): Bar[] => {
    const [label, isOurs] = [titleOf(subject), subject.startsWith('gateway')];
    if (!isTimed) return [{ label, isOurs, value: spreadOf(rounds.map(({ cpu }) => cpu)) }];
    return (['p50', 'p99'] as const).map((which) => ({
      label: `${label}, ${which}`,
      isOurs,
      value: spreadOf(rounds.map(({ latency }) => latency?.[which] ?? NaN)),
    }));
  });
  return plotSvg({ title: scenarioTitle(name), unit: isTimed ? 'milliseconds' : 'CPU µs per request', bars });
}
