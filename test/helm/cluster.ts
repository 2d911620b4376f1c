import { spawn } from 'node:child_process';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import type { Test } from 'tap';
import { kinds } from './kinds.js';
import { startKubernetes } from './kubernetes-api.js';

/** Helm's output about a release. */
export interface Release {
  readonly info: { readonly notes: string };
  readonly manifest: string;
}

/** A simulated cluster. Its functions `helm` and `attempt` run helm, which may fail only in `attempt`. */
export async function cluster(t: Test) {
  const kubernetes = await startKubernetes(t, [...kinds.keys()]);
  const attempt = async (action: 'install' | 'upgrade', recordSecret: object = {}, values: object = {}) => {
    const child = spawn(
      path.resolve('node_modules/.bin/helm'),
      [
        ...[action, 'release', 'helm', '--namespace', 'payments', '--no-hooks', '--disable-openapi-validation'],
        ...['--output', 'json'],
        ...['--values', 'helm/ci/live-tls-values.yaml', '--values', '-', '--kube-apiserver', kubernetes.url],
      ],
      { env: { PATH: process.env.PATH ?? '', HOME: path.resolve('var') } },
    );
    child.stdin.end(JSON.stringify({ secrets: { recordSecret }, ...values }));
    const [out, error] = await Promise.all([text(child.stdout), text(child.stderr)]);
    return { out, error: error.replaceAll(/^W.*\n/gm, '') };
  };
  const helm = async (...given: Parameters<typeof attempt>): Promise<Release> => {
    const { out, error } = await attempt(...given);
    t.equal(error, '');
    return JSON.parse(out) as Release;
  };
  return { ...kubernetes, attempt, helm };
}
