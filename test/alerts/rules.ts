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

/** The rules for any Prometheus. */
const rulesFile = 'helm/files/alerts.yaml';

/** What is in it. */
export const rules: readonly Rule[] = (parse(readFileSync(rulesFile, 'utf8')) as Rules).groups.flatMap(
  (group) => group.rules,
);

/** The figures that they ask for. */
export const metricsOfRules: ReadonlySet<string> = new Set(
  rules.flatMap(({ expr }) => expr.match(/\b(?:gateway|nodejs|registry|services)_\w+/g) ?? []),
);

/** The rules that the chart makes for a release with two gateways, a registry and services, as the content of a file. */
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

/** Files of rules to evaluate: the one for any Prometheus, and that of the chart, which is written into a folder. */
export function ruleFiles(folder: string, write: (file: string, text: string) => void): string[] {
  const ofChart = path.join(folder, 'chart-rules.yaml');
  write(ofChart, renderedRules());
  return [rulesFile, ofChart];
}
