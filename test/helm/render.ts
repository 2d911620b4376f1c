import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { parseAllDocuments } from 'yaml';

const helm = path.resolve('node_modules/.bin/helm');
const profileSuffix = '-values.yaml';

/** The fields that all Kubernetes objects have. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly labels?: Record<string, string>;
    readonly annotations?: Record<string, string>;
  };
}

/** The names of the value files in helm/ci. */
export const profiles: readonly string[] = readdirSync('helm/ci')
  .filter((name) => name.endsWith(profileSuffix))
  .map((name) => name.slice(0, -profileSuffix.length));

/** The output of helm. */
interface Rendered {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs helm on the chart, with the values as JSON on standard input. */
export function runHelm(args: readonly string[], values: object = {}): Rendered {
  const { status, stdout, stderr } = spawnSync(helm, [...args, '--values', '-'], {
    encoding: 'utf8',
    input: JSON.stringify(values),
    env: { PATH: process.env.PATH ?? '', HOME: path.resolve('var') },
    timeout: 60_000,
  });
  return { status, stdout, stderr };
}

/**
 * Renders the chart with a profile and overriding values.
 * @param options additional helm options; the profile overrides values in these options
 */
export function render(profile: string, values: object = {}, options: readonly string[] = []): Rendered {
  const file = `helm/ci/${profile}${profileSuffix}`;
  const cluster = ['--kube-version', '1.27.0', '--namespace', 'payments'];
  return runHelm(['template', 'release', 'helm', ...cluster, ...options, '--values', file], values);
}

/** The objects in helm's output. */
export function manifestsIn({ stdout }: Pick<Rendered, 'stdout'>): Manifest[] {
  return parseAllDocuments(stdout)
    .map((document) => document.toJS() as Manifest | null)
    .filter((manifest) => manifest !== null);
}
