import t from 'tap';
import { parse, stringify } from 'yaml';
import { manifestsIn, profiles, render } from './render.js';
import type { Manifest } from './render.js';

interface Policy extends Manifest {
  readonly spec: { readonly egress?: readonly { readonly ports: readonly { readonly port: number | string }[] }[] };
}

const portsOfSchemes: Readonly<Record<string, string>> = {
  http: '80',
  https: '443',
  redis: '6379',
  rediss: '6379',
  tls: '6514',
  tcp: '601',
};

/** The ports of all URLs and servers that a part's configuration connects to. */
function portsIn(text: string): number[] {
  const urls = [...text.matchAll(/\b(https?|rediss?|tls|tcp):\/\/(?:\[[^\]]+\]|[^\s/:]+)(?::(\d+))?/g)].map(
    ([, scheme = '', port]) => port ?? portsOfSchemes[scheme],
  );
  const servers = [...text.matchAll(/- [a-z0-9.-]+:(\d+)$/gm)].map(([, port]) => port);
  return [...urls, ...servers].map(Number);
}

function portsOf(policy: Policy | undefined): (number | string)[] {
  return (policy?.spec.egress ?? []).flatMap(({ ports }) => ports.map(({ port }) => port));
}

/**
 * Returns the part of a configuration that makes its pod open connections. Only the services fetch keys. Only the
 * gateways call upstreams and send checkpoints. Only the registry signs people in and calls webhooks.
 */
function calledBy(name: string, text: string, hasFetcher: boolean): string {
  const config = parse(text) as Record<string, unknown>;
  if (/-(?:registry|services)$/.test(name)) delete config.upstreams;
  if (/-(?:registry|services|tor-exits)$/.test(name)) delete config.accessLog;
  if (!name.endsWith('-registry')) delete config.registry;
  if (!name.endsWith('-services')) delete config.identity;
  if (hasFetcher && !name.endsWith('-tor-exits')) delete config.torExits;
  return stringify(config);
}

/** Returns the ports to which a part connects by its configuration, but which its NetworkPolicy does not allow. */
function blocked(manifests: readonly Manifest[]): string[] {
  const policies = new Map(
    manifests.filter(({ kind }) => kind === 'NetworkPolicy').map((one) => [one.metadata.name, one as Policy]),
  );
  const hasFetcher = manifests.some(({ kind }) => kind === 'CronJob');
  return manifests.flatMap((one) => {
    const text = (one as Manifest & { data?: Record<string, string> }).data?.['gateway.yaml'];
    const { name } = one.metadata;
    if (text === undefined || /-(migration|check)$/.test(name)) return [];
    const named: Readonly<Record<string, number>> = { management: 9090, api: 9443 };
    const open = portsOf(policies.get(name)).map((port) => named[port] ?? port);
    return portsIn(calledBy(name, text, hasFetcher))
      .filter((port) => !open.includes(port))
      .map((port) => `${name}: ${port}`);
  });
}

/** Values with destinations of every kind. Most of them have other ports than the default ones. */
const elsewhere = {
  config: {
    keyStore: { redis: { url: 'rediss://redis:16379/1' } },
    upstreams: { core: { url: 'http://core:18080' }, ledger: { url: 'https://ledger' } },
    routes: [{ path: '/payouts', upstream: 'core', resource: 'payouts' }],
    traces: { endpoint: 'https://collector:14318/v1/traces' },
    accessLog: { checkpoints: { https: { url: 'https://archive:8446/' }, syslog: { url: 'tls://logs' } } },
    registry: {
      oidc: { issuer: 'https://login.example:8447/realms/staff', clientId: 'gateway' },
      unusual: { webhooks: [{ url: 'https://hooks.example:8448/gateway', secretFile: '/etc/hooks/secret' }] },
    },
    torExits: { enabled: true, sources: ['https://exits.example:8444/list', 'https://[2001:db8::7]:8445/'] },
  },
  secrets: { instanceKey: { create: true }, oidcClientSecret: { existingSecret: 'oidc' } },
  networkPolicy: { enabled: true },
};

t.test('each part may connect to every destination in its configuration', (t) => {
  for (const profile of profiles) {
    for (const values of [{ networkPolicy: { enabled: true } }, elsewhere]) {
      const { status, stdout, stderr } = render(profile, values);
      t.equal(status, 0, `${profile}: ${stderr}`);
      t.same(blocked(manifestsIn({ stdout })), [], profile);
    }
  }
  t.end();
});

t.test('the services may send their events to the registry, which accepts them from there', (t) => {
  const secrets = { servicesTrailToken: { existingSecret: 'trail' }, servicesTokenKey: { existingSecret: 'pair' } };
  const trail = { services: { operators: { trail: { url: 'https://registry.example:9555' } } } };
  for (const config of [{}, trail]) {
    const rendered = render('backing-services', { config, secrets, networkPolicy: { enabled: true } });
    t.equal(rendered.status, 0, rendered.stderr);
    t.same(blocked(manifestsIn(rendered)), []);
  }
  const from = (values: object): string => {
    const manifests = manifestsIn(render('backing-services', { ...values, networkPolicy: { enabled: true } }));
    const policy = manifests.find(
      ({ kind, metadata: { name } }) => kind === 'NetworkPolicy' && name.endsWith('-registry'),
    ) as unknown as { spec: { ingress: object[] } };
    return JSON.stringify(policy.spec.ingress[0]);
  };
  t.match(from({ secrets }), '"app.kubernetes.io/component":"services"');
  t.notMatch(from({}), '"app.kubernetes.io/component":"services"');
  t.end();
});

t.test('access log checkpoints may be sent to only an HTTPS endpoint or only a syslog server', (t) => {
  const secrets = { instanceKey: { create: true }, recordSecret: { create: false }, witnessKey: { create: false } };
  const places = { https: { url: 'https://archive/' }, syslog: { url: 'tls://logs' } };
  for (const [place, port] of [
    ['https', 443],
    ['syslog', 6514],
  ] as const) {
    const config = { accessLog: { checkpoints: { [place]: places[place] } } };
    const rendered = render('behind-ingress', {
      ...{ config, secrets },
      networkPolicy: { egress: { checkpoints: { ports: [port] } } },
    });
    t.equal(rendered.status, 0, `${place}: ${rendered.stderr}`);
    t.same(blocked(manifestsIn(rendered)), []);
  }
  t.end();
});

t.test('destinations of an environment, of another Service port and of the services are allowed too', (t) => {
  const rendered = render('backing-services', {
    ...elsewhere,
    config: { identity: { publicKeysUrl: 'http://keys:9191/' } },
    secrets: {},
    services: { servicePort: 80 },
    environments: {
      test: { enabled: true, gateway: { config: { upstreams: { core: { url: 'http://core:28080' } } } } },
    },
    networkPolicy: { egress: { upstreams: { ports: [443] } } },
  });
  const manifests = manifestsIn(rendered);
  t.equal(rendered.status, 0, rendered.stderr);
  t.same(blocked(manifests), []);
  const policyOf = (end: string) =>
    manifests.find(({ kind, metadata: { name } }) => kind === 'NetworkPolicy' && name.endsWith(end)) as Policy;
  t.ok(portsOf(policyOf('-live')).includes(7080), "the services' pods listen on another port than their Service");
  t.ok(portsOf(policyOf('-test')).includes(28080));
  t.notOk(portsOf(policyOf('-live')).includes(28080), 'the destination of one environment is not allowed in the other');
  t.end();
});

t.test('a URL from a variable of the pod does not open every destination', (t) => {
  const rendered = render('backing-services', {
    ...elsewhere,
    config: { identity: { publicKeysUrl: '${KEYS_URL}' } },
    secrets: {},
  });
  t.equal(rendered.status, 0, rendered.stderr);
  const policies = manifestsIn(rendered).filter(({ kind }) => kind === 'NetworkPolicy') as Policy[];
  const rules = policies.flatMap(({ spec: { egress = [] } }) => egress);
  t.ok(rules.length > 0);
  t.same(
    rules.filter((rule) => !('to' in rule) && !Array.isArray(rule.ports)),
    [],
  );
  t.end();
});

t.test('the NetworkPolicy of Redis allows the port in its URL', (t) => {
  const manifests = manifestsIn(render('backing-services', elsewhere));
  const policy = manifests.find(
    ({ kind, metadata: { name } }) => kind === 'NetworkPolicy' && name.endsWith('-redis'),
  ) as unknown as { spec: { ingress: { ports: { port: number }[] }[] } };
  t.match(
    policy.spec.ingress[0]?.ports.map(({ port }) => port),
    [6379, 26379, 16379],
  );
  t.end();
});

t.test('a port from a variable of the pod must be allowed by the values', (t) => {
  const upstreams = { core: { url: '${CORE_URL}' }, other: { url: 'http://${HOST}:${PORT}' } };
  const rendered = render('behind-ingress', { config: { upstreams } });
  const policy = manifestsIn(rendered).find(({ kind }) => kind === 'NetworkPolicy') as Policy;
  t.same(portsOf(policy), [53, 53, 6379, 26379, 80, 443, 7080]);
  t.end();
});

interface PodMaker extends Manifest {
  readonly spec?: {
    readonly template?: { readonly metadata: { readonly labels: Record<string, string> } };
    readonly jobTemplate?: { readonly spec: PodMaker['spec'] };
  };
}

const orderOf = ({ metadata: { annotations = {} } }: Manifest): number =>
  'helm.sh/hook' in annotations ? Number(annotations['helm.sh/hook-weight'] ?? 0) : Infinity;

t.test('each pod has exactly one NetworkPolicy, which exists before it, for clusters that deny by default', (t) => {
  let count = 0;
  for (const profile of profiles) {
    const manifests = manifestsIn(render(profile, { networkPolicy: { enabled: true } }));
    const policies = manifests.filter(({ kind }) => kind === 'NetworkPolicy') as (Manifest & {
      spec: { podSelector: { matchLabels: Record<string, string> }; policyTypes: string[] };
    })[];
    for (const one of manifests as PodMaker[]) {
      const template = one.spec?.jobTemplate?.spec?.template ?? one.spec?.template;
      const labels = one.kind === 'Pod' ? (one.metadata.labels ?? {}) : template?.metadata.labels;
      if (labels === undefined) continue;
      count += 1;
      const [policy, ...others] = policies.filter(({ spec }) =>
        Object.entries(spec.podSelector.matchLabels).every(([name, value]) => labels[name] === value),
      );
      const what = `${profile}: ${one.kind} ${one.metadata.name}`;
      t.same(policy?.spec.policyTypes, ['Ingress', 'Egress'], what);
      t.same(others, [], what);
      if (policy === undefined || orderOf(one) === Infinity) continue;
      t.equal(policy.metadata.annotations?.['helm.sh/hook'], one.metadata.annotations?.['helm.sh/hook'], what);
      t.ok(orderOf(policy) < orderOf(one), what);
    }
  }
  t.ok(count > 30, `${count} pods`);
  t.end();
});

t.test('a migration may connect to its database, a check to nothing, and a test to its own release', (t) => {
  const manifests = manifestsIn(
    render('both-environments', { networkPolicy: { egress: { database: { ports: [6432] } } } }),
  );
  const policyOf = (end: string): Policy =>
    manifests.find(({ kind, metadata: { name } }) => kind === 'NetworkPolicy' && name.endsWith(end)) as Policy;
  t.same(portsOf(policyOf('-registry-migration')), [53, 53, 6432]);
  t.same(policyOf('-registry-check').spec.egress, []);
  t.match(policyOf('-test-connection').spec.egress?.[1], {
    to: [{ podSelector: { matchLabels: { 'app.kubernetes.io/instance': 'release' } } }],
  });
  t.end();
});
