import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { plotSvg, type Bar } from './plot.js';
import { scenarioTitle, tables, titleOf, type Results } from './report.js';
import { spreadOf } from './statistics.js';

const page = 'docs/benchmarks.md';
const folder = 'docs/benchmarks';
const [begin, end] = ['<!-- written by npm run bench -- --docs -->', '<!-- end of what the bench writes -->'];

/** Draws the plots, and puts them and the tables into the page of the benchmarks, in place of those before. */
export function writePage(results: Results): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const scenario of results.scenarios) writeFileSync(`${folder}/${scenario.name}.svg`, plotOf(scenario));
  const text = readFileSync(page, 'utf8');
  const [before = '', rest] = text.split(begin);
  const after = rest?.split(end)[1];
  if (after === undefined) throw new Error(`${page} has no place between ${begin} and ${end}`);
  const { node, cpu, cpus, date } = results.machine;
  const about = `Node ${String(node)}, ${String(cpus)} × ${String(cpu)}, ${String(date).slice(0, 10)}; ${results.extent.rounds} rounds of ${results.extent.seconds} s.`;
  const image = (name: string): string => `![${scenarioTitle(name)}](benchmarks/${name}.svg)\n\n`;
  const parts = [begin, about, tables(results, image), end];
  writeFileSync(page, before + parts.join('\n\n') + after);
}

/** CPU time a request; where the rate is given, how long an answer took. */
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
  return plotSvg({ title: scenarioTitle(name), unit: isTimed ? 'milliseconds' : 'CPU µs a request', bars });
}
