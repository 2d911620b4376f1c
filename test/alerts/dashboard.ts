import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import type { Test } from 'tap';
import { stringify } from 'yaml';
import type { InputSeries } from './promtool.js';
import type { Part } from './rig.js';

interface Panel {
  readonly id: number;
  readonly title: string;
  readonly type: string;
  readonly gridPos: Readonly<Record<'x' | 'y' | 'w' | 'h', number>>;
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

interface Dashboard {
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly { readonly query: string; readonly type: string }[] };
}

/** The dashboard for Grafana. */
export const dashboard = JSON.parse(readFileSync('helm/files/dashboard.json', 'utf8')) as Dashboard;
const queries = dashboard.panels.flatMap(({ title, targets = [] }) =>
  targets.map(({ expr, legendFormat }) => ({
    title,
    legendFormat,
    expr: expr.replaceAll('$__rate_interval', '5m').replaceAll('$job', '.*'),
  })),
);

/** Labels that Prometheus adds to each series. */
const ofTargets = ['job', 'instance', 'namespace', 'service'];
/** Further labels that Prometheus adds to each alert. */
const ofAlerts = ['alertname', 'alertstate', 'severity'];

/** A deployment, and its metrics in a quiet hour. */
interface Scenes {
  readonly parts: Readonly<Record<string, Part>>;
  readonly folder: string;
  readonly quietSeries: readonly InputSeries[];
}

/** Tests that each query uses metrics and labels of running processes, and returns a result in a quiet hour. */
export async function testQueries(t: Test, { parts, folder, quietSeries }: Scenes): Promise<void> {
  const labelsOf = new Map<string, Set<string>>();
  for (const part of Object.values(parts)) {
    for (const line of ((await part.scrape())?.text ?? '').split('\n')) {
      const [, name = '', labels = ''] = /^(\w+)(?:\{(.*)\})? \S+$/.exec(line) ?? [];
      const known = labelsOf.get(name) ?? new Set(ofTargets);
      for (const [, label = ''] of labels.matchAll(/(\w+)="/g)) known.add(label);
      labelsOf.set(name, known);
    }
    // A metric without a series yet is declared by its TYPE line.
    for (const [, name = ''] of ((await part.scrape())?.text ?? '').matchAll(/^# TYPE (\w+) /gm))
      if (!labelsOf.has(name)) labelsOf.set(name, new Set([...ofTargets, 'source', 'reason', 'result', 'cause']));
  }
  labelsOf.set('ALERTS', new Set([...ofTargets, ...ofAlerts]));

  t.ok(queries.length > 50, `${queries.length} queries`);
  for (const { title, expr, legendFormat } of queries) {
    const names = [...expr.matchAll(/\b(?:gateway|nodejs|process|registry|services)_\w+|\bALERTS\b/g)].map(
      ([name]) => name,
    );
    t.ok(names.length > 0, `${title}: ${expr}`);
    const known = new Set(names.flatMap((name) => [...(labelsOf.get(name) ?? [])]));
    t.same(
      names.filter((name) => !labelsOf.has(name)),
      [],
      title,
    );
    const asked = [...expr.matchAll(/(\w+)(?:=~?|!=|!~)"/g), ...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(
      ([, label = '']) => label,
    );
    const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(/, ?/));
    t.same(
      [...asked, ...grouped].filter((label) => !known.has(label)),
      [],
      `${title}: ${expr}`,
    );
  }

  const rulesFile = path.join(folder, 'queries.yaml');
  const asRules = queries.map(({ expr }, index) => ({ record: `query:${index}`, expr }));
  writeFileSync(rulesFile, stringify({ groups: [{ name: 'dashboard', rules: asRules }] }, { lineWidth: 0 }));
  t.equal(await outputOfFailed('check', 'rules', rulesFile), null);

  // A quiet hour has no result for queries that need an incident or an optional feature.
  const mayBeEmpty = /ALERTS|5\.\.|_refused_total|refusals_total|trace_spans|repaired_total|throttled|redis_|_wait/;
  const neverEmpty = queries.filter(({ expr }) => !mayBeEmpty.test(expr));
  const test = {
    interval: '1m',
    input_series: quietSeries,
    promql_expr_test: neverEmpty.map(({ expr }) => ({
      expr: `count(${expr}) > bool 0`,
      eval_time: '60m',
      exp_samples: [{ labels: '{}', value: 1 }],
    })),
  };
  const testFile = path.join(folder, 'queries-tests.yaml');
  writeFileSync(testFile, stringify({ rule_files: [], evaluation_interval: '1m', tests: [test] }, { lineWidth: 0 }));
  t.equal(await outputOfFailed('test', 'rules', testFile), null);
}

/**
 * Runs promtool without blocking this process. Otherwise, idle connections of the test would end unnoticed.
 * @returns the output of promtool if it fails, otherwise null
 */
async function outputOfFailed(...args: readonly string[]): Promise<string | null> {
  const child = spawn('promtool', args, { stdio: ['ignore', 'pipe', 'pipe'] });
  const closed = once(child, 'close') as Promise<[number | null]>;
  const [out, err, [status]] = await Promise.all([text(child.stdout), text(child.stderr), closed]);
  return status === 0 ? null : `${out}${err}`.replaceAll(/\n\s*\n/g, '\n').slice(0, 4000);
}
