import t from 'tap';
import { parseAllDocuments } from 'yaml';
import { manifestsIn, render } from './render.js';

interface Metadata {
  readonly labels: Record<string, string>;
  readonly annotations?: Record<string, string>;
}

interface Workload {
  readonly kind: string;
  readonly metadata: Metadata;
  readonly spec?: { readonly template?: { readonly metadata: Metadata } };
}

/** The metadata of the Deployments' pods. */
function podsOf(manifests: readonly Workload[]): Metadata[] {
  return manifests.flatMap(({ kind, spec }) => (kind === 'Deployment' ? (spec?.template?.metadata ?? []) : []));
}

t.test('a label given at several levels occurs once: the most specific one', (t) => {
  const values = {
    commonLabels: { team: 'payments', 'app.kubernetes.io/part-of': 'platform' },
    gateway: { podLabels: { team: 'edge' } },
  };
  const rendered = render('live-tls', values);
  const manifests = manifestsIn(rendered) as unknown as Workload[];
  for (const { kind, metadata } of manifests) {
    t.match(metadata.labels, { team: 'payments', 'app.kubernetes.io/part-of': 'platform' }, kind);
  }
  const pods = podsOf(manifests).map(({ labels }) => labels);
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
    'no duplicate key',
  );
  t.end();
});

t.test('the config digest annotation occurs once and cannot be overridden, so that changes cause a rollout', (t) => {
  const annotations = { 'merchant-gateway/config': 'mine', team: 'edge' };
  const rendered = render('live-tls', { commonAnnotations: annotations, gateway: { podAnnotations: annotations } });
  const errors = parseAllDocuments(rendered.stdout).flatMap((document) => document.errors);
  t.same(errors, [], 'no duplicate key');
  const pods = podsOf(manifestsIn(rendered) as unknown as Workload[]);
  t.equal(pods.length, 2);
  for (const { annotations: those } of pods)
    t.match(those, { 'merchant-gateway/config': /^[0-9a-f]{64}$/, team: 'edge' });
  t.end();
});

t.test('every image tag leads to one valid version label', (t) => {
  const versionOf = (tag: string): (string | undefined)[] =>
    (manifestsIn(render('live-tls', { image: { tag } })) as unknown as Workload[]).map(
      ({ metadata }) => metadata.labels['app.kubernetes.io/version'],
    );
  for (const [tag, version] of [
    [`${'a'.repeat(61)}.-b${'c'.repeat(60)}`, 'a'.repeat(61)],
    ['_1.2-', '1.2'],
    ['1.10', '1.10'],
  ] as const)
    t.same([...new Set(versionOf(tag))], [version], tag);
  t.end();
});
