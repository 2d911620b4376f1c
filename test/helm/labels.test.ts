import t from 'tap';
import { parseAllDocuments } from 'yaml';
import { manifestsIn, render } from './render.js';

interface Workload {
  readonly kind: string;
  readonly metadata: { readonly labels: Record<string, string> };
  readonly spec?: { readonly template?: { readonly metadata: { readonly labels: Record<string, string> } } };
}

t.test('a label that is given more than once is there once: the one that is nearest to the object', (t) => {
  const values = {
    commonLabels: { team: 'payments', 'app.kubernetes.io/part-of': 'platform' },
    gateway: { podLabels: { team: 'edge' } },
  };
  const rendered = render('live-tls', values);
  const manifests = manifestsIn(rendered) as unknown as Workload[];
  for (const { kind, metadata } of manifests) {
    t.match(metadata.labels, { team: 'payments', 'app.kubernetes.io/part-of': 'platform' }, kind);
  }
  const pods = manifests.flatMap(({ spec }) => (spec?.template === undefined ? [] : [spec.template.metadata.labels]));
  t.same(
    pods.map((labels) => [labels['app.kubernetes.io/component'], labels.team]),
    [
      ['gateway-live', 'edge'],
      ['registry', 'payments'],
    ],
  );
  t.same(
    parseAllDocuments(rendered.stdout).flatMap(({ errors }) => errors.map(({ message }) => message)),
    [],
    'no name stands twice in one place',
  );
  t.end();
});
