import { parseArgs } from 'node:util';
import { scenarios } from './scenarios.js';
import { subjects } from '../subjects/index.js';

/** The options of a benchmark run. */
export interface BenchOptions {
  readonly scenarios: readonly string[];
  readonly subjects: readonly string[];
  readonly rounds: number;
  readonly seconds: number;
  readonly warmUpSeconds: number;
  readonly connections: number;
  /** Whether to measure only what the table of targets needs. */
  readonly targetsOnly: boolean;
  readonly jsonFile: string;
  /** Whether to write plots and tables to docs/benchmarks/, and the table of targets to docs/benchmarks.md. */
  readonly docs: boolean;
  /** File with the figures of an earlier run, used instead of measuring; null: measure. */
  readonly fromFile: string | null;
}

const defaults = { rounds: '5', seconds: '2', 'warm-up': '8', connections: '64', json: 'var/bench/latest.json' };

const help = `Usage: npm run bench -- [options]

Compares what a request costs here with other gateways and proxies, in CPU time, round by round.

  --scenario NAMES   some of: ${scenarios.map(({ name }) => name).join(', ')}
  --subject NAMES    some of: ${subjects.map(({ name }) => name).join(', ')}
  --targets          only what the table of targets needs
  --rounds N         rounds of each subject, by turns (${defaults.rounds})
  --seconds N        length of a round (${defaults.seconds})
  --warm-up N        seconds of load before the first round (${defaults['warm-up']})
  --connections N    connections at once (${defaults.connections})
  --json FILE        where the figures go (${defaults.json})
  --docs             updates plots and tables in docs/benchmarks/, and the targets in docs/benchmarks.md
  --from FILE        measures nothing: prints, and draws, the figures of such a file
  --help             this text

NAMES are separated by commas; without them, all.
`;

/** Parses the command line. Ends the process after --help (status 0), and after printing all problems (status 2). */
export function readOptions(args: readonly string[]): BenchOptions {
  const problems: string[] = [];
  const values = parse(args, problems);
  if (values.help === true) {
    process.stdout.write(help);
    process.exit(0);
  }
  const text = (name: keyof typeof defaults): string => (values[name] as string | undefined) ?? defaults[name];
  const number = (name: keyof typeof defaults, most: number): number => {
    const value = Number(text(name));
    if (!Number.isSafeInteger(value) || value < 1 || value > most) {
      problems.push(`--${name} must be a whole number from 1 to ${most}.`);
    }
    return value;
  };
  const names = (option: 'scenario' | 'subject', known: readonly string[]): readonly string[] => {
    const given = (values[option] as string | undefined)?.split(',') ?? known;
    const unknown = given.filter((name) => !known.includes(name));
    if (unknown.length > 0)
      problems.push(`--${option} does not know ${unknown.join(', ')}; it knows ${known.join(', ')}.`);
    return given;
  };
  const options = {
    scenarios: names(
      'scenario',
      scenarios.map(({ name }) => name),
    ),
    subjects: names(
      'subject',
      subjects.map(({ name }) => name),
    ),
    rounds: number('rounds', 1000),
    seconds: number('seconds', 3600),
    warmUpSeconds: number('warm-up', 600),
    connections: number('connections', 1024),
    targetsOnly: values.targets === true,
    jsonFile: text('json'),
    docs: values.docs === true,
    fromFile: (values.from as string | undefined) ?? null,
  };
  if (problems.length === 0) return options;
  process.stderr.write(`${problems.join('\n')}\n(--help tells what is expected)\n`);
  return process.exit(2);
}

function parse(args: readonly string[], problems: string[]): Record<string, unknown> {
  const text = { type: 'string' } as const;
  const flag = { type: 'boolean' } as const;
  const named = Object.fromEntries(Object.keys(defaults).map((name) => [name, text]));
  const options = { ...named, scenario: text, subject: text, from: text, targets: flag, docs: flag, help: flag };
  try {
    return parseArgs({ args: [...args], options }).values;
  } catch (error) {
    problems.push((error as Error).message);
    return {};
  }
}
