import t from 'tap';
import { manifestsIn, render } from './render.js';
import type { Manifest } from './render.js';

const bothEnvironments = manifestsIn(render('both-environments'));

/** The suffixes of the scraped Services. */
const ownServices = '(live-management|test-management|registry|services)';

t.test('each selector of the alerts is limited to the release', (t) => {
  const rule = bothEnvironments.find(({ kind }) => kind === 'PrometheusRule');
  const { groups } = (rule as unknown as { spec: { groups: { rules: { expr: string }[] }[] } }).spec;
  const expressions = groups.flatMap(({ rules }) => rules.map(({ expr }) => expr));
  t.ok(expressions.length > 10);
  const own = `{namespace="payments", service=~"release-merchant-gateway-${ownServices}", `;
  for (const expression of expressions) {
    const metrics = [...expression.matchAll(/\b(?:gateway|nodejs|registry|services)_\w+(?=(.{0,160}))/g)].map(
      ([, rest = '']) => rest,
    );
    t.ok(metrics.length > 0 && metrics.every((rest) => rest.startsWith(own)), expression);
  }
  t.end();
});

t.test('alerts of a release exclude a release whose name has the same prefix', (t) => {
  const measuredIn = (manifests: readonly Manifest[]): string[] =>
    manifests
      .filter(({ kind, metadata: { labels } }) => kind === 'Service' && labels?.['merchant-gateway/metrics'] === 'true')
      .map(({ metadata: { name } }) => name);
  const named = (profile: string, fullnameOverride: string): Manifest[] =>
    manifestsIn(render(profile, { fullnameOverride }));
  const rule = named('both-environments', 'payments').find(({ kind }) => kind === 'PrometheusRule');
  const [, pattern = ''] = /service=~\\?"([^"\\]+)/.exec(JSON.stringify(rule)) ?? [];
  const isWatched = (name: string): boolean => new RegExp(`^(?:${pattern})$`).test(name);
  for (const profile of ['both-environments', 'backing-services']) {
    const [own, other] = [measuredIn(named(profile, 'payments')), measuredIn(named(profile, 'payments-sandbox'))];
    t.ok(own.length > 2 && own.every(isWatched), `${pattern} matches ${own.join(', ')}`);
    t.same(other.filter(isWatched), [], `${pattern} does not match ${other.join(', ')}`);
  }
  t.end();
});

t.test('registry and services are scraped where they run, and have no alerts elsewhere', (t) => {
  const groupsOf = (manifests: readonly Manifest[]): readonly string[] => {
    const rule = manifests.find(({ kind }) => kind === 'PrometheusRule');
    return (rule as unknown as { spec: { groups: { name: string }[] } }).spec.groups.map(({ name }) => name);
  };
  const monitoring = { serviceMonitor: { enabled: true }, prometheusRule: { enabled: true } };
  const watcher = { namespaceSelector: { matchLabels: { name: 'watchers' } } };
  const values = { monitoring, networkPolicy: { enabled: true, monitoring: [watcher] } };
  const cases = [
    ['live-tls', ['registry'], true],
    ['both-environments', ['registry'], true],
    ['registry-alone', ['registry'], false],
    ['backing-services', ['registry', 'services'], true],
  ] as const;
  for (const [profile, parts, hasGateways] of cases) {
    const manifests = manifestsIn(render(profile, values));
    const groups = [...(hasGateways ? ['merchant-gateway'] : []), ...parts.map((part) => `merchant-gateway-${part}`)];
    t.same(groupsOf(manifests), groups, profile);
    const monitor = manifests.find(({ kind }) => kind === 'ServiceMonitor');
    const endpoint = { path: '/metrics', interval: '30s' };
    t.match(monitor, {
      spec: {
        endpoints: [
          { ...endpoint, port: 'management' },
          { ...endpoint, port: 'api' },
          { ...endpoint, port: 'api-tls', scheme: 'https', tlsConfig: { insecureSkipVerify: true } },
        ],
      },
    });
    for (const part of parts) {
      const own = manifests.filter(({ metadata }) => metadata.name.endsWith(`-${part}`));
      const service = own.find(({ kind }) => kind === 'Service');
      t.match(service, {
        metadata: { labels: { 'merchant-gateway/metrics': 'true' } },
        spec: { ports: [{ name: part === 'registry' ? 'api-tls' : 'api' }] },
      });
      const policy = own.find(({ kind }) => kind === 'NetworkPolicy') as unknown as {
        spec: { ingress: { ports: object[]; from?: object[] }[] };
      };
      const ports = [{ protocol: 'TCP', port: 'api' }];
      t.same(policy.spec.ingress.at(-1), { ports, from: [watcher] }, `${profile} ${part}`);
    }
  }
  t.end();
});

t.test('allowing scrapes does not block gateways of another release from the services', (t) => {
  const monitoring = [{ namespaceSelector: { matchLabels: { name: 'watchers' } } }];
  const rendered = render('backing-services', {
    environments: { live: { enabled: false } },
    config: { identity: { publicKeysUrl: 'http://gateways:9090/.well-known/jwks.json' } },
    torExits: { cronJob: { enabled: false } },
    networkPolicy: { monitoring },
  });
  t.equal(rendered.status, 0, rendered.stderr);
  const policy = manifestsIn(rendered).find(
    ({ kind, metadata: { name } }) => kind === 'NetworkPolicy' && name.endsWith('-services'),
  );
  const ports = [{ protocol: 'TCP', port: 'api' }];
  t.match(policy, { spec: { ingress: [{ ports }, { ports, from: monitoring }] } });
  t.same((policy as unknown as { spec: { ingress: object[] } }).spec.ingress[0], { ports });
  t.end();
});

t.test('GatewayAway fires for an environment without gateways even if the other has some', (t) => {
  const rule = bothEnvironments.find(({ kind }) => kind === 'PrometheusRule');
  const { groups } = (rule as unknown as { spec: { groups: { rules: { alert: string; expr: string }[] }[] } }).spec;
  const { expr = '' } = groups.flatMap(({ rules }) => rules).find(({ alert }) => alert === 'GatewayAway') ?? {};
  const services = [...expr.matchAll(/absent\(gateway_ready\{[^}]*, service="([^"]+)"\}\)/g)].map(([, name]) => name);
  t.same(
    services,
    ['live', 'test'].map((name) => `release-merchant-gateway-${name}-management`),
  );
  t.end();
});
