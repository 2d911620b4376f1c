import { parseArgs } from 'node:util';
import { Teardowns } from '../deployment/teardowns.js';
import { totalsOf, traceWays, ways, type RanFunction, type Trace } from './trace.js';

const usage = `npm run trace [-- OPTIONS]

Prints the files, functions and lines of the built gateway that ran for a request: in each of twenty equal ones, in the order of the
first call. What runs at other times, such as the heartbeat, is left out.

  --way NAME   ${Object.keys(ways).join(', ')}; may be repeated. All of them unless it is given.
  --json       JSON: of each way its title, totals and functions
  --help       this text
`;

const t = new Teardowns();
try {
  const { values } = parseArgs({
    options: {
      way: { type: 'string', multiple: true, default: Object.keys(ways) },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) process.stdout.write(usage);
  else {
    const wanted = values.way.map((name) => {
      const way = ways[name];
      if (way === undefined) throw new TypeError(`There is no way "${name}"; known: ${Object.keys(ways).join(', ')}.`);
      return way;
    });
    const traces = await traceWays(t, wanted);
    if (values.json)
      process.stdout.write(`${JSON.stringify(traces.map((trace) => ({ ...trace, totals: totalsOf(trace) })))}\n`);
    else for (const trace of traces) print(trace);
  }
} catch (error) {
  if (!(error instanceof TypeError)) throw error;
  process.stderr.write(`${error.message}\n\n${usage}`);
  process.exitCode = 2;
} finally {
  await t.close();
}

/** Prints the totals of a trace, and one line for each sequence of functions of the same file. */
function print(trace: Trace): void {
  const totals = totalsOf(trace);
  process.stdout.write(
    `${trace.title}: ${totals.files} files, ${totals.functions} functions, ${totals.lines} lines, ${totals.calls} calls\n`,
  );
  const stretches: RanFunction[][] = [];
  for (const ran of trace.functions) {
    const last = stretches.at(-1);
    if (last?.[0]?.file === ran.file) last.push(ran);
    else stretches.push([ran]);
  }
  for (const stretch of stretches) {
    const lines = stretch.reduce((sum, ran) => sum + ran.lines, 0);
    const names = stretch.map(({ name, calls }) => (calls > 1 ? `${name} (${calls} times)` : name));
    process.stdout.write(`${String(lines).padStart(5)}  ${stretch[0]?.file ?? ''}: ${names.join(', ')}\n`);
  }
  process.stdout.write('\n');
}
