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

/** A cluster with the admin token Secret; runs helm against it. */
export async function cluster(t: Test) {
  const kubernetes = await startKubernetes(t, [...kinds.keys()]);
  kubernetes.addSecret('merchant-gateway-admin-token');
  const helm = async (
    action: 'install' | 'upgrade',
    recordSecret: object = {},
    values: object = {},
  ): Promise<Release> => {
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
    t.equal(error.replaceAll(/^W.*\n/gm, ''), '');
    return JSON.parse(out) as Release;
  };
  return { ...kubernetes, helm };
}
