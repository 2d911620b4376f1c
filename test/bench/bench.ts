import { mkdir, writeFile } from 'node:fs/promises';
import { cpus, totalmem } from 'node:os';
import path from 'node:path';
import { say } from './command-line.js';
import { measure } from './compare/measure.js';
import { readOptions } from './compare/options.js';
import { notPinned, pinLoad } from './compare/processes.js';
import { tables, type Results } from './compare/report.js';
import { scenarios } from './compare/scenarios.js';
import { judge, targets } from './compare/targets.js';
import { subjects } from './subjects/index.js';

// What a request costs in CPU time, here and in other gateways and proxies: each a process of its own, by turns.

const options = readOptions(process.argv.slice(2));
if (notPinned === null) pinLoad();
else say(`Subjects have no CPU of their own: ${notPinned}.`);

const wanted = subjects.filter(({ name }) => options.subjects.includes(name));
const leftOut = Object.fromEntries(
  wanted.map((subject) => [subject.name, subject.missing()] as const).filter(([, reason]) => reason !== null),
) as Record<string, string>;
for (const [name, reason] of Object.entries(leftOut)) say(`left out: ${name}: ${reason}`);

const { rounds, seconds, warmUpSeconds, connections } = options;
const extent = { rounds, seconds, warmUpSeconds, connections };
const measured: Results['scenarios'][number][] = [];
for (const scenario of scenarios.filter(({ name }) => options.scenarios.includes(name))) {
  const about = targets.filter((target) => target.scenario === scenario.name);
  const needed = new Set(about.flatMap(({ subject, against }) => [subject, against]));
  const here = wanted.filter(
    ({ name }) => !(name in leftOut) && scenario.subjects.includes(name) && (!options.targetsOnly || needed.has(name)),
  );
  if (here.length > 0) measured.push({ name: scenario.name, measured: await measure(scenario, here, extent) });
}

const results: Results = {
  machine: {
    ...{ node: process.version, cpu: cpus()[0]?.model ?? '', cpus: cpus().length, date: new Date().toISOString() },
    ...{ gibibytes: Math.round(totalmem() / 2 ** 30), pinned: notPinned ?? 'yes' },
  },
  ...{ extent, leftOut, scenarios: measured },
  targets: measured.flatMap(({ name, measured: figures }) => judge(name, figures)),
};
await mkdir(path.dirname(options.jsonFile), { recursive: true });
await writeFile(options.jsonFile, `${JSON.stringify(results, null, 1)}\n`);
process.stdout.write(`${tables(results)}\n`);
