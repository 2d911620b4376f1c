import { createPrivateKey, X509Certificate } from 'node:crypto';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t from 'tap';
import { parse } from 'yaml';
import { run } from '../../src/cli/run.js';
import { kinds } from './kinds.js';
import { acceptances, refusals } from './refusals.js';
import { manifestsIn, profiles, render, runHelm } from './render.js';
import type { Manifest } from './render.js';
import { unsaidSentences } from './sentences.js';
import { unknownFields } from './unknown-fields.js';

const directory = mkdtempSync(path.join(tmpdir(), 'merchant-gateway-chart-'));
t.teardown(() => {
  rmSync(directory, { recursive: true, force: true });
});

/** Each profile is rendered once for all tests. */
const rendered = new Map(profiles.map((profile) => [profile, render(profile)]));
const all = new Map([...rendered].map(([profile, output]) => [profile, manifestsIn(output)]));

t.test('every profile renders and passes helm lint', (t) => {
  for (const [profile, { status, stderr }] of rendered) t.equal(status, 0, `${profile}: ${stderr}`);
  const { status, stdout } = runHelm(['lint', 'helm', '--strict', '--values', 'helm/ci/both-environments-values.yaml']);
  t.equal(status, 0, stdout);
  t.end();
});

t.test('every object conforms to its Kubernetes schema, without unknown fields', (t) => {
  const manifests = [...all.values()].flat();
  const seen = new Set<string>();
  for (const manifest of manifests) {
    const kind = kinds.get(`${manifest.apiVersion} ${manifest.kind}`);
    seen.add(`${manifest.apiVersion} ${manifest.kind}`);
    t.doesNotThrow(() => kind?.validate(manifest), `${manifest.kind} ${manifest.metadata.name}`);
  }
  t.same([...seen].toSorted(), [...kinds.keys()].toSorted(), 'each kind occurs in a profile');
  t.same(unknownFields(manifests), []);
  const [deployment] = manifests.filter(({ kind }) => kind === 'Deployment');
  const broken = { ...deployment, spec: { ...(deployment as unknown as Workload).spec, replica: 3 } };
  t.match(unknownFields([broken as unknown as Manifest]), [/replica/], 'an unknown field is detected');
  t.end();
});

interface Container {
  readonly name: string;
  readonly image: string;
  readonly args?: readonly string[];
  readonly command?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value?: string; readonly valueFrom?: unknown }[];
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string; readonly readOnly?: boolean }[];
  readonly ports?: readonly { readonly containerPort: number }[];
  readonly [name: string]: unknown;
}

interface PodSpec {
  readonly containers: readonly Container[];
  readonly volumes?: readonly { readonly name: string }[];
  readonly terminationGracePeriodSeconds?: number;
  readonly [name: string]: unknown;
}

interface Workload extends Manifest {
  readonly spec: { readonly template: { readonly spec: PodSpec; readonly metadata: Manifest['metadata'] } };
}

/** The pod templates of all objects that have one. */
function podsOf(manifests: readonly Manifest[]): { readonly owner: Manifest; readonly spec: PodSpec }[] {
  return manifests.flatMap((owner) => {
    if (owner.kind === 'Pod') return [{ owner, spec: (owner as unknown as { spec: PodSpec }).spec }];
    if (owner.kind === 'CronJob') {
      const { jobTemplate } = (owner as unknown as { spec: { jobTemplate: Workload } }).spec;
      return [{ owner, spec: jobTemplate.spec.template.spec }];
    }
    return owner.kind === 'Deployment' || owner.kind === 'Job'
      ? [{ owner, spec: (owner as Workload).spec.template.spec }]
      : [];
  });
}

t.test('every pod has minimal privileges', (t) => {
  let containers = 0;
  for (const { owner, spec } of [...all.values()].flat().flatMap((one) => podsOf([one]))) {
    const name = `${owner.kind} ${owner.metadata.name}`;
    t.match(
      spec,
      {
        automountServiceAccountToken: false,
        enableServiceLinks: false,
        securityContext: {
          runAsNonRoot: true,
          runAsUser: 1000,
          runAsGroup: 1000,
          seccompProfile: { type: 'RuntimeDefault' },
        },
      },
      name,
    );
    for (const forbidden of [
      'hostNetwork',
      'hostPID',
      'hostIPC',
      'hostUsers',
      'shareProcessNamespace',
      'initContainers',
    ]) {
      t.notOk(forbidden in spec, `${name} has no ${forbidden}`);
    }
    t.notMatch(JSON.stringify(spec), /hostPath|privileged|hostPort/, name);
    for (const container of spec.containers) {
      containers += 1;
      t.same(
        container.securityContext,
        { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
        name,
      );
      t.match(container.resources, { requests: { cpu: String, memory: String }, limits: { memory: String } }, name);
      t.ok(
        (container.ports ?? []).every(({ containerPort }) => containerPort > 1024),
        `${name}: no privileged port`,
      );
      const writable = (container.volumeMounts ?? []).filter(({ readOnly }) => readOnly !== true);
      const own = ['/var/lib/merchant-gateway/var', '/var/lib/merchant-gateway/data', '/tmp'];
      t.same(
        writable.map(({ mountPath }) => mountPath).filter((one) => !own.includes(one)),
        [],
        `${name} has only its own directories writable`,
      );
    }
  }
  t.ok(containers > 10, 'pods were checked');
  t.end();
});

t.test('no object contains a secret value, only references to Secrets', (t) => {
  for (const [profile, manifests] of all) {
    t.same(
      manifests.filter(({ kind }) => kind === 'Secret'),
      [],
      profile,
    );
    for (const { spec } of podsOf(manifests)) {
      const values = spec.containers.flatMap(({ env = [] }) => env.map(({ value = '' }) => value));
      t.notMatch(values.join(), /password|postgres:\/\//i, profile);
    }
  }
  t.end();
});

t.test('with recordSecret.create the chart generates the record secret for registry and gateways', (t) => {
  const secrets = { recordSecret: { create: true } };
  const manifests = manifestsIn(render('both-environments', { secrets }));
  const [made, ...others] = manifests.filter(({ kind }) => kind === 'Secret') as (Manifest & {
    data: Record<string, string>;
    immutable: boolean;
  })[];
  t.same(others, []);
  t.equal(Buffer.from(made?.data['record-secret'] ?? '', 'base64').length, 64);
  t.match(made, { immutable: true, metadata: { annotations: { 'helm.sh/resource-policy': 'keep' } } });
  const mounted = podsOf(manifests).filter(({ spec }) =>
    JSON.stringify(spec.volumes ?? []).includes(made?.metadata.name ?? '-'),
  );
  t.ok(mounted.length >= 2, 'gateways and registry mount the secret');
  const own = manifestsIn(
    render('both-environments', { secrets: { recordSecret: { create: true, existingSecret: 'mine' } } }),
  );
  t.notOk(
    own.some(({ kind }) => kind === 'Secret'),
    'an existing secret takes precedence',
  );
  t.match(JSON.stringify(own), /recordSecretFile: \/etc\/merchant-gateway\/secrets\/recordSecret\/record-secret/);
  t.end();
});

t.test('the registry has the certificate that is created or given, and accepts the names of its Service', (t) => {
  const name = 'release-merchant-gateway-registry-tls';
  const registryOf = (manifests: readonly Manifest[]): string =>
    JSON.stringify(podsOf(manifests).find(({ owner: { metadata } }) => metadata.name.endsWith('-registry'))?.spec);
  const made = manifestsIn(render('live-tls', { registry: { tls: { create: true } } }));
  const secret = made.find(({ kind }) => kind === 'Secret') as
    (Manifest & { data: Record<string, string> }) | undefined;
  t.match(secret, {
    type: 'kubernetes.io/tls',
    metadata: { name, annotations: { 'helm.sh/resource-policy': 'keep', 'merchant-gateway/renew-at': /^[0-9]{10}$/ } },
  });
  const part = (key: string): Buffer => Buffer.from(secret?.data[key] ?? '', 'base64');
  const [certificate, ca] = [new X509Certificate(part('tls.crt')), new X509Certificate(part('ca.crt'))];
  t.ok(certificate.verify(ca.publicKey) && certificate.checkPrivateKey(createPrivateKey(part('tls.key'))));
  const hosts = ['', '.payments', '.payments.svc', '.payments.svc.cluster.local'].map(
    (end) => `release-merchant-gateway-registry${end}`,
  );
  for (const host of [...hosts, 'localhost']) t.equal(certificate.checkHost(host), host);
  t.equal(certificate.checkIP('127.0.0.1'), '127.0.0.1');
  t.match(registryOf(made), `"secretName":"${name}"`);
  t.match(registryOf(made), '"mountPath":"/etc/merchant-gateway/tls"');

  const given = render('live-tls', {
    registry: { tls: { existingSecret: 'mine' } },
    config: { registry: { hosts: ['registry.example.com'] } },
  });
  t.notOk(manifestsIn(given).some(({ kind }) => kind === 'Secret'));
  t.match(registryOf(manifestsIn(given)), '"secretName":"mine"');
  t.match(given.stdout, ['hosts:', 'registry.example.com', ...hosts].join('\n      - '));
  t.end();
});

t.test('the termination grace period covers the drain delay, the drain timeout and a margin', (t) => {
  const [deployment] = deploymentsOf('both-environments').filter(({ metadata }) => metadata.name.endsWith('-live'));
  const spec = deployment?.spec.template.spec;
  t.equal(
    spec?.terminationGracePeriodSeconds,
    10 + 60 + 10,
    'gateway.drainDelaySeconds, limits.drainTimeoutSeconds and a margin',
  );
  t.match(spec?.containers[0], {
    readinessProbe: { httpGet: { path: '/readyz', port: 'management' } },
    livenessProbe: { httpGet: { path: '/livez', port: 'management' } },
    startupProbe: { httpGet: { path: '/livez', port: 'management' } },
  });
  t.match(
    deployment?.spec,
    { strategy: { rollingUpdate: { maxUnavailable: 0 } } },
    'no pod is stopped before its replacement is ready',
  );
  t.end();
});

function deploymentsOf(profile: string): Workload[] {
  return (all.get(profile) ?? []).filter(({ kind }) => kind === 'Deployment') as Workload[];
}

/** The text of each configuration that a profile renders, by ConfigMap name. */
function configsOf(profile: string): [string, string][] {
  return (all.get(profile) ?? [])
    .filter(({ kind }) => kind === 'ConfigMap')
    .map((one) => one as Manifest & { data: Record<string, string> })
    .flatMap(({ metadata, data }) =>
      data['gateway.yaml'] === undefined ? [] : [[metadata.name, data['gateway.yaml']]],
    );
}

t.test('every rendered configuration passes `config check` of this version', async (t) => {
  process.env.CUSTOMERS_HOST = 'customers.core';
  process.env.MERCHANT_GATEWAY_DATABASE_URL = 'postgres://registry@database/registry';
  for (const profile of profiles) {
    const configs = configsOf(profile);
    t.ok(configs.length > 0, profile);
    for (const [name, text] of configs) {
      const file = path.join(directory, 'gateway.yaml');
      writeFileSync(file, text);
      let [out, err] = ['', ''];
      const status = await run(['config', 'check', '--json', '--config', file], {
        out: (part) => (out += part),
        err: (part) => (err += part),
      });
      t.equal(status, 0, `${profile}: ${name}: ${err}`);
      t.equal((JSON.parse(out) as { environment: string }).environment, /-test(-check)?$/.test(name) ? 'test' : 'live');
    }
  }
  t.end();
});

t.test('every file named in a configuration is mounted', (t) => {
  for (const profile of profiles) {
    for (const { spec, owner } of podsOf(all.get(profile) ?? [])) {
      if (owner.metadata.name.endsWith('-check')) continue; // the check opens no files
      const mounts = spec.containers.flatMap(({ volumeMounts = [] }) => volumeMounts);
      const volume = (spec.volumes ?? []).find(({ name }) => name === 'config') as
        { configMap: { name: string } } | undefined;
      const text = configsOf(profile).find(([name]) => name === volume?.configMap.name)?.[1] ?? '';
      const files = [...text.matchAll(/\/(?:etc|var\/lib)\/\S+/g)].map(([file]) => file);
      for (const file of files) {
        t.ok(
          mounts.some(({ mountPath }) => file.startsWith(`${mountPath}/`)),
          `${profile}: ${owner.metadata.name}: ${file}`,
        );
      }
      const volumes = new Set((spec.volumes ?? []).map(({ name }) => name));
      t.same(
        mounts.filter(({ name }) => !volumes.has(name)),
        [],
        `${owner.metadata.name}: each mount has its volume`,
      );
    }
  }
  t.end();
});

t.test('before an upgrade, a hook checks the configuration of each part', (t) => {
  for (const profile of profiles) {
    const configs = new Map(configsOf(profile));
    for (const { metadata, spec } of deploymentsOf(profile)) {
      const name = `${metadata.name}-check`;
      t.ok(configs.has(name) && configs.get(name) === configs.get(metadata.name), `${name}: the same configuration`);
      const job = (all.get(profile) ?? []).find((one) => one.kind === 'Job' && one.metadata.name === name) as Workload;
      t.match(job.metadata.annotations, { 'helm.sh/hook': 'pre-install,pre-upgrade', 'helm.sh/hook-weight': '-9' });
      const pod = job.spec.template.spec;
      const [container] = pod.containers;
      const command = spec.template.spec.containers[0]?.args?.[0] ?? '';
      const file = ['--config', '/etc/merchant-gateway/config/gateway.yaml'];
      t.same(container?.args, ['config', 'check', ...file, '--for', command], 'for the command of the part');
      t.same(container?.env, spec.template.spec.containers[0]?.env, 'with the variables of the part');
      t.equal(pod.serviceAccountName, 'default', "the part's service account may not exist yet");
      t.notMatch(
        JSON.stringify(pod.volumes),
        /secret|persistentVolumeClaim|core-ca/,
        'without volumes that the check does not read',
      );
    }
  }
  const fetching = {
    config: { torExits: { sources: ['https://exits.example/list'] } },
    torExits: { cronJob: { enabled: true } },
  };
  const fetched = manifestsIn(render('live-tls', fetching));
  const checked = fetched.filter(({ metadata: { name } }) => name.endsWith('-tor-exits-check'));
  t.same(
    checked.map(({ kind }) => kind).toSorted(),
    ['ConfigMap', 'Job', 'NetworkPolicy'],
    'the configuration of the CronJob is checked too',
  );
  const without = manifestsIn(render('live-tls', { configCheck: { enabled: false }, ...fetching }));
  t.notOk(without.some(({ metadata: { name } }) => name.endsWith('-check')));
  t.end();
});

t.test('the hook detects errors that the chart cannot detect', async (t) => {
  const wrong = {
    'trustedProxies[0]': { trustedProxies: ['foo'] },
    'rateLimit.shared': { rateLimit: { shared: true } },
    'upstreams.payouts.url': { upstreams: { payouts: { url: 'http://payouts:70000' } } },
    'routes[0].upstream': { routes: [{ path: '/payouts', upstream: 'nobody', resource: 'payouts' }] },
    'listen.https.clientCaFile': { listen: { https: { clientCertificates: 'require' } } },
  };
  for (const [option, config] of Object.entries(wrong)) {
    const manifests = manifestsIn(render('live-tls', { config }));
    const map = manifests.find(({ kind, metadata: { name } }) => kind === 'ConfigMap' && name.endsWith('-live-check'));
    const file = path.join(directory, 'wrong.yaml');
    writeFileSync(file, (map as Manifest & { data: Record<string, string> }).data['gateway.yaml'] ?? '');
    let err = '';
    const status = await run(['config', 'check', '--config', file], {
      out: () => undefined,
      err: (part) => (err += part),
    });
    t.not(status, 0, option);
    t.ok(err.includes(`: ${option}: `), err);
  }
  t.end();
});

const said: string[] = [];
for (const [what, sentence, values] of refusals) {
  t.test(`rejected: ${what}`, (t) => {
    const { status, stderr } = render('live-tls', values);
    said.push(stderr);
    t.equal(status, 1);
    t.match(stderr.replaceAll(/\s+/g, ' '), sentence);
    t.end();
  });
}

for (const [what, values] of acceptances) {
  t.test(`accepted: ${what}`, (t) => {
    const { status, stderr } = render('live-tls', values);
    t.equal(status, 0, stderr);
    t.end();
  });
}

t.test('rejected: a release name that is invalid in a Service name', (t) => {
  const values = ['--kube-version', '1.27.0', '--values', 'helm/ci/live-tls-values.yaml'];
  const { status, stderr } = runHelm(['template', '1.release', 'helm', ...values]);
  said.push(stderr);
  t.equal(status, 1);
  t.match(stderr, '1.release-merchant-gateway is not a valid name of a Service');
  t.end();
});

t.test('the default values are rejected, and all missing values are reported together', (t) => {
  const { status, stderr } = runHelm(['template', 'release', 'helm', '--kube-version', '1.27.0']);
  said.push(stderr);
  t.equal(status, 1);
  for (const part of ['no TLS', 'pepper', 'config.upstreams', 'Tor exits', 'no Redis', 'adminToken'])
    t.match(stderr, part);
  t.end();
});

t.test('each rejection message of the chart is tested above', (t) => {
  const { all, unsaid } = unsaidSentences(['_safety.tpl', '_safety-pods.tpl', 'safety.yaml'], said);
  t.ok(all >= 27, `${all} messages`);
  t.same(unsaid, []);
  t.end();
});

t.test('only the gateways can connect to the services, and only gateways, registry and CronJob to Redis', (t) => {
  const policyOf = (
    profile: string,
    name: string,
  ): { ingress: { from?: { podSelector?: { matchLabels: Record<string, string> } }[] }[] } => {
    const policy = all.get(profile)?.find((one) => one.kind === 'NetworkPolicy' && one.metadata.name.endsWith(name));
    return (policy as unknown as { spec: ReturnType<typeof policyOf> }).spec;
  };
  const componentsOf = (profile: string, name: string): (string | undefined)[] =>
    policyOf(profile, name).ingress.flatMap(({ from }) =>
      (from ?? [{}]).map(({ podSelector }) => podSelector?.matchLabels['app.kubernetes.io/component']),
    );
  t.same(componentsOf('backing-services', '-services'), ['gateway-live']);
  t.same(componentsOf('both-environments', '-redis'), ['gateway-live', 'gateway-test', 'registry', undefined]);
  t.same(componentsOf('backing-services', '-redis'), ['gateway-live', 'registry', 'tor-exits']);
  t.same(
    componentsOf('registry-alone', '-registry'),
    ['test'],
    "without gateways only the release's own test can connect to the registry",
  );
  t.end();
});

t.test('with a CronJob for Tor exits the gateways have no egress to their sources', (t) => {
  const ports = (manifests: readonly Manifest[], name: string): unknown => {
    const policy = manifests.find((one) => one.kind === 'NetworkPolicy' && one.metadata.name.endsWith(name));
    return (policy as unknown as { spec: { egress: { ports: { port: number }[] }[] } }).spec.egress.map((rule) =>
      rule.ports.map(({ port }) => port),
    );
  };
  const fetching = all.get('backing-services') ?? [];
  const itself = manifestsIn(render('backing-services', { torExits: { cronJob: { enabled: false } } }));
  t.same(ports(fetching, '-tor-exits'), [
    [53, 53],
    [6379, 26379],
    [80, 443],
  ]);
  t.same(ports(fetching, '-live'), [[53, 53], [6379, 26379], [80, 443, 7080], [4318]]);
  t.same(ports(itself, '-live'), [[53, 53], [6379, 26379], [80, 443, 7080], [80, 443], [4318]]);
  t.notOk(itself.some(({ kind, metadata }) => kind === 'CronJob' || metadata.name.endsWith('-tor-exits')));
  const [pod] = podsOf(fetching.filter(({ kind }) => kind === 'CronJob'));
  t.match(pod?.spec.containers[0]?.args, ['tor-exits', 'refresh', '--config', String]);
  t.notMatch(JSON.stringify(pod?.spec.volumes), /secret/, 'the CronJob mounts no secret');
  t.end();
});

t.test('liveness and readiness of the registry are probed over HTTPS, and of the services over HTTP', (t) => {
  for (const [name, scheme] of [
    ['-registry', 'HTTPS'],
    ['-services', undefined],
  ] as const) {
    const part = deploymentsOf('backing-services').find(({ metadata }) => metadata.name.endsWith(name));
    t.match(
      part?.spec.template.spec.containers[0],
      {
        startupProbe: { httpGet: { path: '/livez', port: 'api', scheme } },
        livenessProbe: { httpGet: { path: '/livez', port: 'api', scheme } },
        readinessProbe: { httpGet: { path: '/readyz', port: 'api', scheme } },
      },
      name,
    );
  }
  t.end();
});

/** The suffixes of the scraped Services. */
const ownServices = '(live-management|test-management|registry|services)';

t.test('each selector of the alerts is limited to the release', (t) => {
  const rule = all.get('both-environments')?.find(({ kind }) => kind === 'PrometheusRule');
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

t.test('a migration Job may take more than an hour', (t) => {
  const jobs = [...all.values()]
    .flat()
    .filter(({ kind, metadata: { name } }) => kind === 'Job' && name.endsWith('-migration'));
  t.ok(jobs.length > 1);
  for (const job of jobs) {
    const { activeDeadlineSeconds } = (job as unknown as { spec: { activeDeadlineSeconds: number } }).spec;
    t.ok(activeDeadlineSeconds > 3600, job.metadata.name);
  }
  t.end();
});

t.test('the startup probe allows a migration of more than an hour if the part migrates itself', (t) => {
  const startOf = (manifests: readonly Manifest[]): { probed: number; deadline: number | undefined } => {
    const registry = manifests.find(
      ({ kind, metadata }) => kind === 'Deployment' && metadata.name.endsWith('-registry'),
    );
    const { spec } = registry as unknown as Workload & { spec: { progressDeadlineSeconds?: number } };
    const [container] = spec.template.spec.containers;
    const { periodSeconds, failureThreshold } = container?.startupProbe as Record<string, number>;
    return { probed: Number(periodSeconds) * Number(failureThreshold), deadline: spec.progressDeadlineSeconds };
  };
  const byItself = {
    'on SQLite': render('live-tls'),
    'without a migration hook': render('both-environments', { migrations: { enabled: false } }),
  };
  for (const [when, output] of Object.entries(byItself)) {
    const { probed, deadline = 600 } = startOf(manifestsIn(output));
    t.ok(probed > 3600, `${when}: ${probed} s`);
    t.ok(deadline > probed, `${when}: the rollout does not time out before`);
  }
  t.equal(startOf(all.get('both-environments') ?? []).probed, 120, 'after a migration hook the start is short');
  t.end();
});

t.test('GatewayAway fires for an environment without gateways even if the other has some', (t) => {
  const rule = all.get('both-environments')?.find(({ kind }) => kind === 'PrometheusRule');
  const { groups } = (rule as unknown as { spec: { groups: { rules: { alert: string; expr: string }[] }[] } }).spec;
  const { expr = '' } = groups.flatMap(({ rules }) => rules).find(({ alert }) => alert === 'GatewayAway') ?? {};
  const services = [...expr.matchAll(/absent\(gateway_ready\{[^}]*, service="([^"]+)"\}\)/g)].map(([, name]) => name);
  t.same(
    services,
    ['live', 'test'].map((name) => `release-merchant-gateway-${name}-management`),
  );
  t.end();
});

t.test("the services can fetch the gateways' public keys", (t) => {
  const [, text = ''] = configsOf('backing-services').find(([name]) => name.endsWith('-services')) ?? [];
  const url = /publicKeysUrl: (\S+)/.exec(text)?.[1] ?? '';
  const { hostname, port, pathname } = new URL(url);
  const found = all
    .get('backing-services')
    ?.find(({ kind, metadata: { name } }) => kind === 'Service' && name === hostname);
  t.match(found, { spec: { ports: [{ port: Number(port) }] } }, url);
  t.equal(pathname, '/.well-known/jwks.json');
  const policies = (all.get('backing-services') ?? []).filter(({ kind }) => kind === 'NetworkPolicy');
  const rulesOf = (end: string) => JSON.stringify(policies.find(({ metadata: { name } }) => name.endsWith(end)));
  t.match(rulesOf('-live'), /"port":"management"[^\]]*\],?[^\]]*"from":.*"app.kubernetes.io\/component":"services"/);
  t.match(rulesOf('-services'), /"egress":.*"port":"management".*"app.kubernetes.io\/component":"gateway-live"/);
  t.end();
});

t.test('the schema is closed at every level, and README and schema match the values', (t) => {
  const made = spawnSync(process.execPath, ['helm/generate.mjs', directory], { encoding: 'utf8' });
  t.equal(made.status, 0, made.stderr);
  for (const name of ['README.md', 'values.schema.json']) {
    const isSame = readFileSync(path.join(directory, name), 'utf8') === readFileSync(`helm/${name}`, 'utf8');
    t.ok(isSame, `helm/${name} is out of date: run npm run chart`);
  }
  const open: string[] = [];
  const walk = (schema: unknown, place: string): void => {
    if (typeof schema !== 'object' || schema === null) return;
    if ('properties' in schema && (schema as { additionalProperties?: unknown }).additionalProperties !== false)
      open.push(place);
    for (const [name, part] of Object.entries(schema)) walk(part, `${place}/${name}`);
  };
  walk(JSON.parse(readFileSync('helm/values.schema.json', 'utf8')), '');
  t.same(open, []);
  t.end();
});

t.test('chart and product have the same version', (t) => {
  const chart = parse(readFileSync('helm/Chart.yaml', 'utf8')) as Record<string, string>;
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  t.match(chart, { version, appVersion: version });
  t.end();
});

t.test('the package contains exactly the required files', (t) => {
  cpSync('helm', path.join(directory, 'chart'), { recursive: true });
  const { status, stdout } = spawnSync(path.resolve('node_modules/.bin/helm'), ['package', 'chart'], {
    cwd: directory,
    encoding: 'utf8',
  });
  t.equal(status, 0, stdout);
  const list = spawnSync('tar', ['-tzf', `merchant-gateway-${chartVersion()}.tgz`], {
    cwd: directory,
    encoding: 'utf8',
  });
  t.notMatch(list.stdout, /\/ci\/|\.mjs\n.*generate|README\.in/);
  t.match(list.stdout, /files\/alerts\.yaml/);
  t.end();
});

function chartVersion(): string {
  return (parse(readFileSync('helm/Chart.yaml', 'utf8')) as { version: string }).version;
}
