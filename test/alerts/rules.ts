import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parse, stringify } from 'yaml';
import { manifestsIn, render } from '../helm/render.js';

interface Rule {
  readonly alert: string;
  readonly expr: string;
}

interface Rules {
  readonly groups: readonly { readonly rules: readonly Rule[] }[];
}

/** The file of rules for a plain Prometheus. */
const rulesFile = 'helm/files/alerts.yaml';

/** The rules in this file. */
export const rules: readonly Rule[] = (parse(readFileSync(rulesFile, 'utf8')) as Rules).groups.flatMap(
  (group) => group.rules,
);

/** The metrics that the rules query. */
export const metricsOfRules: ReadonlySet<string> = new Set(
  rules.flatMap(({ expr }) => expr.match(/\b(?:gateway|nodejs|registry|services)_\w+/g) ?? []),
);

/** Renders the chart's rules for a release with two gateways, a registry and services. */
function renderedRules(): string {
  const values = {
    gateway: { replicas: 2, podDisruptionBudget: { maxUnavailable: 1 } },
    monitoring: { prometheusRule: { enabled: true } },
  };
  const rendered = render('backing-services', values);
  const rule = manifestsIn(rendered).find(({ kind }) => kind === 'PrometheusRule');
  if (rule === undefined) throw new Error(rendered.stderr);
  return stringify((rule as unknown as { spec: object }).spec, { lineWidth: 0 });
}

/** The rule files to evaluate: the one for a plain Prometheus, and the chart's, which `write` writes into `folder`. */
export function ruleFiles(folder: string, write: (file: string, text: string) => void): string[] {
  const ofChart = path.join(folder, 'chart-rules.yaml');
  write(ofChart, renderedRules());
  return [rulesFile, ofChart];
}
