import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { stringify } from 'yaml';

/** An input series of a rule test: its name with labels, and one value per minute. */
export interface InputSeries {
  readonly series: string;
  readonly values: string;
}

/** The expected alerts at a time in minutes. */
export interface Expectation {
  readonly minute: number;
  /** The alert that fires then; null: no alert fires. */
  readonly fires: string | null;
  /** An alert that must not fire then; others may. */
  readonly silent?: string;
}

/** A period for which the rules are evaluated. */
export interface Scenario {
  readonly name: string;
  readonly input: readonly InputSeries[];
  readonly expected: readonly Expectation[];
}

/** The reason why rules cannot be evaluated on this machine; false if they can. */
export const withoutPromtool =
  spawnSync('promtool', ['--version']).status === 0
    ? false
    : "promtool (Debian's prometheus) is not installed: NO ALERT IS EVALUATED";

/**
 * Evaluates rules over all scenarios, in one run of promtool.
 * @param rules a file of rules
 * @returns null if all expectations hold, otherwise the output of promtool
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
  // The failures, without blank lines.
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
