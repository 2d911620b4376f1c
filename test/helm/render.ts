import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { parseAllDocuments } from 'yaml';

const helm = path.resolve('node_modules/.bin/helm');
const profileSuffix = '-values.yaml';

/** An object of Kubernetes, as far as every one is the same. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly labels?: Record<string, string>;
    readonly annotations?: Record<string, string>;
  };
}

/** The sets of values in helm/ci, by name. */
export const profiles: readonly string[] = readdirSync('helm/ci')
  .filter((name) => name.endsWith(profileSuffix))
  .map((name) => name.slice(0, -profileSuffix.length));

/** What helm printed. */
interface Rendered {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs helm; the chart is the last argument but for values, which are given as JSON on standard input. */
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
 * Renders the chart with a profile and, above it, values.
 * @param options further ones of helm; values of theirs are below the profile's
 */
export function render(profile: string, values: object = {}, options: readonly string[] = []): Rendered {
  const file = `helm/ci/${profile}${profileSuffix}`;
  const cluster = ['--kube-version', '1.27.0', '--namespace', 'payments'];
  return runHelm(['template', 'release', 'helm', ...cluster, ...options, '--values', file], values);
}

/** The objects in what helm printed. */
export function manifestsIn({ stdout }: Rendered): Manifest[] {
  return parseAllDocuments(stdout)
    .map((document) => document.toJS() as Manifest | null)
    .filter((manifest) => manifest !== null);
}
