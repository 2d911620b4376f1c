import { createPrivateKey, X509Certificate } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t from 'tap';
import { ran } from '../cli/ran.js';
import { kinds } from './kinds.js';
import { manifestsIn, profiles, render, runHelm } from './render.js';
import type { Manifest } from './render.js';
import { unknownFields } from './unknown-fields.js';

const directory = mkdtempSync(path.join(tmpdir(), 'merchant-gateway-profiles-'));
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
  const [deployment] = manifests.filter(({ kind }) => kind === 'Deployment');
  const broken = { ...deployment, spec: { ...(deployment as unknown as Workload).spec, replica: 3 } };
  const [found = '', ...others] = unknownFields([...manifests, broken as unknown as Manifest]);
  t.match(found, /\breplica\b/, 'an unknown field is detected');
  t.same(others, [], 'no other field is unknown');
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

/** Returns the pod spec of each object that is a pod or creates pods, with that object as `owner`. */
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
      const { status, out, err } = await ran('config', 'check', '--json', '--config', file);
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
    const { status, err } = await ran('config', 'check', '--config', file);
    t.not(status, 0, option);
    t.ok(err.includes(`: ${option}: `), err);
  }
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
