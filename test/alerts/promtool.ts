import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { parse, stringify } from 'yaml';

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

interface Rule {
  readonly alert: string;
  readonly expr: string;
}

interface Rules {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

/**
 * Evaluates rules over all scenarios, in one run of promtool. If a scenario expects only certain alerts, only the rules
 * and metrics of these alerts are evaluated. Otherwise promtool would spend most of its time on rules whose result no
 * expectation names. No rule depends on another one.
 * @param rules a file of rules
 * @returns null if all expectations hold, otherwise the output of promtool
 */
export function evaluate(folder: string, rules: string, scenarios: readonly Scenario[]): string | null {
  const { groups } = parse(readFileSync(rules, 'utf8')) as Rules;
  const files = scenarios.map(({ name, input, expected }, index) => {
    const isWanted = ({ alert }: Rule): boolean =>
      expected.some(({ fires, silent }) => (fires ?? silent ?? alert) === alert);
    const wanted = groups.map((group) => ({ ...group, rules: group.rules.filter(isWanted) }));
    const queries = wanted.flatMap((group) => group.rules.map(({ expr }) => expr)).join('\n');
    const metrics = new Set(queries.match(/\w+/g));
    const ruleFile = path.join(folder, `rules-${index}.yaml`);
    writeFileSync(ruleFile, stringify({ groups: wanted }, { lineWidth: 0 }));
    const test = {
      name,
      interval: '1m',
      input_series: input.filter(({ series }) => metrics.has(series.slice(0, series.indexOf('{')))),
      promql_expr_test: expected.map(({ minute, fires, silent }) => ({
        expr: exprOf(fires, silent),
        eval_time: `${minute}m`,
        exp_samples: fires === null ? [] : [{ labels: `{alertname="${fires}"}`, value: 1 }],
      })),
    };
    const file = path.join(folder, `test-${index}.yaml`);
    const content = { rule_files: [ruleFile], evaluation_interval: '1m', tests: [test] };
    writeFileSync(file, stringify(content, { lineWidth: 0 }));
    return file;
  });
  const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', ...files], {
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
