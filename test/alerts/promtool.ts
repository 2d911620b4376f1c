import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { stringify } from 'yaml';

/** A series of a test of rules: its name with labels, and a value for each minute. */
export interface InputSeries {
  readonly series: string;
  readonly values: string;
}

/** What is expected of alerts at a moment, in minutes. */
export interface Expectation {
  readonly minute: number;
  /** One that fires then; null: none does at all. */
  readonly fires: string | null;
  /** One that does not fire then, whatever else does. */
  readonly silent?: string;
}

/** A stretch of time that rules look at. */
export interface Scenario {
  readonly name: string;
  readonly input: readonly InputSeries[];
  readonly expected: readonly Expectation[];
}

/** Why rules cannot be evaluated here; false where they can. */
export const withoutPromtool =
  spawnSync('promtool', ['--version']).status === 0
    ? false
    : "promtool (Debian's prometheus) is not installed: NO ALERT IS EVALUATED";

/**
 * Evaluates rules over all scenarios, in one run of promtool.
 * @param rules a file of rules
 * @returns null where all is as expected, else what promtool says
 */
export function evaluate(folder: string, rules: string, scenarios: readonly Scenario[]): string | null {
  const tests = scenarios.map(({ name, input, expected }) => ({
    name,
    interval: '1m',
    input_series: input,
    promql_expr_test: expected.map(({ minute, fires, silent }) => ({
      expr: exprOf(fires, silent),
      eval_time: `${minute}m`,
      exp_samples: fires === null ? [] : [{ labels: `{alertname="${fires}"}`, value: 1 }],
    })),
  }));
  const file = path.join(folder, 'tests.yaml');
  writeFileSync(
    file,
    stringify({ rule_files: [path.resolve(rules)], evaluation_interval: '1m', tests }, { lineWidth: 0 }),
  );
  const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', file], {
    encoding: 'utf8',
    maxBuffer: 256 * 1024 * 1024,
  });
  if (status === 0) return null;
  // What fails, without the blank lines between.
  return `${stdout}\n${stderr}`
    .split('\n')
    .filter((line) => line.trim() !== '')
    .slice(0, 60)
    .join('\n');
}

function exprOf(fires: string | null, silent: string | undefined): string {
  const alert = fires ?? silent;
  const name = alert === undefined ? '' : `, alertname="${alert}"`;
  return `group by (alertname) (ALERTS{alertstate="firing"${name}})`;
}
