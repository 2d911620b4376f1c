import { readFileSync } from 'node:fs';
import t from 'tap';
import type { Test } from 'tap';
import { kinds } from './kinds.js';
import { merged } from './merged.js';
import { pairsOf, pairwise } from './pairwise.js';
import type { Dimensions } from './pairwise.js';
import { manifestsIn, profiles, render, runHelm } from './render.js';
import type { Manifest } from './render.js';
import { unknownFields } from './unknown-fields.js';

const sidecar = { name: 'shipper', image: 'shipper:1', resources: { limits: { memory: '64Mi' } } };
const peer = { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'monitoring' } } };
const rule = { from: [peer], ports: [{ protocol: 'TCP', port: 2112 }] };
const upstreams = Object.fromEntries(
  ['transactions', 'payouts', 'customers'].map((name) => [name, { url: `http://${name}:8080` }]),
);
const inFront = { config: { trustedProxies: ['10.244.0.0/16'] } };
const tls = { existingSecret: 'api-example-tls' };

/** The same settings for each part that has pods. */
function pods(settings: object): object {
  return { gateway: settings, registry: settings, services: settings };
}

/** Independent choices of an operator. No choice removes anything that another one needs. */
const dimensions: Dimensions = {
  edge: {
    'load balancer': {
      gateway: {
        tls,
        service: {
          type: 'LoadBalancer',
          loadBalancerClass: 'example.com/nlb',
          loadBalancerIP: '203.0.113.7',
          loadBalancerSourceRanges: ['203.0.113.0/24'],
          allocateLoadBalancerNodePorts: false,
          healthCheckNodePort: 30444,
          annotations: { 'example.com/scheme': 'internet-facing' },
          labels: { tier: 'edge' },
        },
      },
    },
    'node ports': {
      gateway: {
        tls,
        service: { type: 'NodePort', nodePorts: { https: 30443, http: 30080 }, externalIPs: ['203.0.113.8'] },
      },
    },
    'cert-manager': {
      gateway: {
        plainListener: false,
        tls: { certManager: { enabled: true, issuerRef: { name: 'ca' }, dnsNames: ['api.example.com'] } },
      },
    },
    ingress: {
      gateway: { ingress: { enabled: true, className: 'nginx', hosts: ['api.example.com'], labels: { tier: 'edge' } } },
      environments: { test: { gateway: { ingress: { className: 'inside' } } } },
    },
    HTTPRoute: {
      gateway: { route: { enabled: true, parentRefs: [{ name: 'edge' }], annotations: { 'example.com/a': 'b' } } },
      environments: {
        live: { gateway: { route: { hostnames: ['api.example.com'] } } },
        test: { gateway: { route: { hostnames: ['sandbox.example.com'] } } },
      },
    },
    TLSRoute: {
      gateway: { tls, route: { enabled: true, kind: 'TLSRoute', parentRefs: [{ name: 'edge', sectionName: 'tls' }] } },
      environments: {
        live: { gateway: { route: { hostnames: ['api.example.com'] } } },
        test: { gateway: { route: { hostnames: ['sandbox.example.com'] } } },
      },
    },
    'PROXY protocol': {
      config: { proxyProtocol: true },
      gateway: { service: { sessionAffinity: 'ClientIP', internalTrafficPolicy: 'Local' } },
    },
    'client certificates': {
      config: { listen: { https: { clientCertificates: 'request' } } },
      secrets: { tlsClientCa: { existingSecret: 'client-ca' }, tlsTicketKeys: { existingSecret: 'tickets' } },
      gateway: {
        tls,
        listenAddress: '::',
        service: { ipFamilyPolicy: 'PreferDualStack', ipFamilies: ['IPv6', 'IPv4'] },
      },
    },
  },
  hatches: {
    'no overrides': {},
    'security contexts': pods({
      podSecurityContext: { runAsUser: 2000, runAsGroup: null, fsGroup: 2000, supplementalGroups: [3000] },
      securityContext: { capabilities: { drop: ['ALL'], add: ['NET_BIND_SERVICE'] } },
    }),
    sidecars: pods({
      extraContainers: [{ ...sidecar, volumeMounts: [{ name: 'scratch', mountPath: '/scratch' }] }],
      extraVolumes: [{ name: 'scratch', emptyDir: { sizeLimit: '1Mi' } }],
      extraVolumeMounts: [{ name: 'scratch', mountPath: '/scratch' }],
    }),
    'init containers': pods({ initContainers: [{ ...sidecar, restartPolicy: 'Always' }] }),
    variables: pods({
      envFrom: [{ configMapRef: { name: 'common' } }, { secretRef: { name: 'core' } }],
      extraEnv: [{ name: 'POD', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }],
    }),
    scheduling: pods({
      nodeSelector: { 'kubernetes.io/arch': 'arm64' },
      tolerations: [{ key: 'edge', operator: 'Exists', effect: 'NoSchedule' }],
      affinity: { nodeAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [] } },
      topologySpreadConstraints: [
        {
          maxSkew: 1,
          topologyKey: 'zone',
          whenUnsatisfiable: 'DoNotSchedule',
          labelSelector: { matchLabels: { a: 'b' } },
        },
      ],
      priorityClassName: 'system-cluster-critical',
      runtimeClassName: 'gvisor',
      schedulerName: 'other',
      podLabels: { tier: 'edge' },
      podAnnotations: { 'example.com/log': 'json' },
      deploymentLabels: { tier: 'edge' },
      deploymentAnnotations: { 'example.com/owner': 'edge' },
    }),
    names: pods({
      hostAliases: [{ ip: '10.0.0.9', hostnames: ['core.example'] }],
      dnsPolicy: 'None',
      dnsConfig: { nameservers: ['10.0.0.10'], options: [{ name: 'ndots', value: '1' }] },
      readinessGates: [{ conditionType: 'cloud.example/in-load-balancer' }],
    }),
    times: pods({
      lifecycle: { preStop: { exec: { command: ['node', '-e', '0'] } } },
      terminationGracePeriodSeconds: 120,
      probes: { startup: { failureThreshold: 99 }, liveness: { timeoutSeconds: 9 }, readiness: { periodSeconds: 9 } },
      revisionHistoryLimit: 0,
    }),
  },
  environments: {
    production: {},
    sandbox: { environments: { live: { enabled: false }, test: { enabled: true } } },
    both: { environments: { test: { enabled: true, gateway: { config: { log: { level: 'debug' } } } } } },
  },
  registry: {
    'registry on SQLite': { registry: { persistence: { size: '2Gi', storageClass: 'fast', annotations: { a: 'b' } } } },
    'registry on PostgreSQL': {
      secrets: { registryDatabase: { existingSecret: 'registry-database' } },
      registry: { replicas: 2, serviceAnnotations: { a: 'b' }, serviceLabels: { tier: 'core' } },
    },
    'registry with a user that owns no tables': {
      secrets: { registryDatabase: { existingSecret: 'registry-database' } },
      migrations: { registryOwner: { existingSecret: 'registry-owner' }, registryUser: 'registry' },
    },
    'registry on its own volume': { registry: { persistence: { existingClaim: 'registry' } } },
    'external registry': { registry: { enabled: false } },
  },
  services: {
    'external services': { config: { upstreams } },
    'services of the chart': {
      secrets: { identitySigningKey: { existingSecret: 'identity' } },
      services: { enabled: true },
    },
    'services on PostgreSQL': {
      secrets: {
        identitySigningKey: { existingSecret: 'identity' },
        servicesDatabase: { existingSecret: 'services-database' },
      },
      services: { enabled: true, replicas: 3, podDisruptionBudget: { maxUnavailable: '34%' } },
    },
  },
  redis: {
    'one Redis': { config: { keyStore: { redis: { url: 'redis://redis:6379' } } } },
    sentinels: {
      config: {
        keyStore: { redis: { url: 'rediss://redis:6379', sentinel: { masterName: 'a', servers: ['sentinel:26379'] } } },
      },
      secrets: { redisPassword: { existingSecret: 'redis' }, redisCa: { existingSecret: 'redis-tls' } },
    },
    'Redis Cluster': { config: { keyStore: { redis: { cluster: ['redis-0:6379', 'redis-1:6379', 'redis-2:6379'] } } } },
  },
  exits: {
    'exits in a ConfigMap': { torExits: { existingConfigMap: 'exits' } },
    'exits by URL': { config: { torExits: { sources: ['https://exits.example/list'] } } },
    'exits by a CronJob': {
      config: { torExits: { sources: ['https://exits.example/list'] } },
      torExits: { cronJob: { enabled: true, schedule: '@hourly' } },
    },
    'Tor exits not rejected': { config: { torExits: { enabled: false } } },
  },
  scaling: {
    'three replicas': {},
    autoscaling: { gateway: { autoscaling: { enabled: true, minReplicas: 2 } } },
    'autoscaling by memory too': {
      gateway: {
        rollingUpdate: { maxSurge: '50%' },
        podDisruptionBudget: { maxUnavailable: null, minAvailable: 1 },
        autoscaling: {
          enabled: true,
          targetMemoryUtilizationPercentage: 80,
          metrics: [
            { type: 'Pods', pods: { metric: { name: 'rps' }, target: { type: 'AverageValue', averageValue: '1k' } } },
          ],
          behavior: { scaleUp: { policies: [{ type: 'Percent', value: 50, periodSeconds: 30 }] } },
        },
      },
    },
  },
  policies: {
    policies: { networkPolicy: { monitoring: [peer] } },
    'more policies': {
      networkPolicy: {
        monitoring: [peer],
        clients: [{ ipBlock: { cidr: '0.0.0.0/0', except: ['10.0.0.0/8'] } }],
        administrators: [peer],
        extraIngress: { gateway: [rule], registry: [rule], services: [rule] },
        extraEgress: { gateway: [{ to: [peer] }], registry: [{ to: [peer] }], services: [{ to: [peer] }] },
        protectRedis: { enabled: true, podLabels: { app: 'redis' }, alsoFrom: [peer] },
      },
    },
    'no policies': { networkPolicy: { enabled: false } },
  },
  monitoring: {
    'no monitoring': {},
    metrics: {
      monitoring: {
        serviceMonitor: { enabled: true },
        prometheusRule: { enabled: true },
        dashboard: { enabled: true },
      },
    },
    'customised monitoring': {
      monitoring: {
        runbookBaseUrl: 'https://git.example/gateway/blob/v1',
        serviceMonitor: {
          enabled: true,
          scrapeTimeout: '5s',
          labels: { release: 'prometheus' },
          relabelings: [{ sourceLabels: ['__meta_kubernetes_pod_node_name'], targetLabel: 'node' }],
          metricRelabelings: [{ regex: 'nodejs_.*', action: 'labeldrop' }],
        },
        prometheusRule: {
          enabled: true,
          alertLabels: { team: 'payments' },
          alerts: { GatewaySlow: { threshold: 0.3, for: '20m', severity: 'page' } },
        },
        dashboard: { enabled: true, annotations: { folder: 'payments' } },
      },
    },
  },
  objects: {
    'no other objects': {},
    'other names': {
      fullnameOverride: 'payments',
      commonLabels: { team: 'payments' },
      commonAnnotations: { 'example.com/owner': 'payments' },
      image: { digest: `sha256:${'0'.repeat(64)}`, pullSecrets: [{ name: 'registry' }], pullPolicy: 'Always' },
    },
    'other objects': {
      serviceAccount: { name: 'payments', annotations: { 'iam.example/role': 'payments' } },
      extraObjects: [
        'apiVersion: v1\nkind: ConfigMap\nmetadata: { name: "{{ .Release.Name }}-more" }\ndata: { a: b }\n',
      ],
      migrations: { enabled: false },
      configCheck: { enabled: false },
    },
  },
};

const base = {
  ...inFront,
  secrets: { keyPepper: { existingSecret: 'pepper' }, adminToken: { existingSecret: 'admin-token' } },
};

const combinations = pairwise(dimensions);

t.test('every combination of choices renders, and each object conforms to its Kubernetes schema', (t) => {
  t.ok(combinations.length >= 60, `${combinations.length} combinations`);
  t.equal(new Set(combinations.map((one) => JSON.stringify(one))).size, combinations.length, 'combinations are unique');
  // Combinations have most documents in common, so each text is parsed and validated once.
  const known = new Map<string, Manifest[]>();
  for (const combination of combinations) {
    const name = Object.values(combination).join(', ');
    const values = Object.entries(combination).reduce<unknown>(
      (all, [dimension, way]) => merged(all, dimensions[dimension]?.[way]),
      base,
    );
    const rendered = runHelm(
      ['template', 'release', 'helm', '--kube-version', '1.27.0', '--namespace', 'payments'],
      values as object,
    );
    if (rendered.status !== 0) t.fail(`${name}: ${rendered.stderr}`);
    const manifests = rendered.stdout.split(/^---$/m).flatMap((text) => {
      const found = known.get(text) ?? parsed(t, name, text);
      known.set(text, found);
      return found;
    });
    t.ok(
      manifests.some(({ kind }) => kind === 'Deployment'),
      name,
    );
    const names = manifests.map(({ apiVersion, kind, metadata }) => `${apiVersion} ${kind} ${metadata.name}`);
    t.equal(new Set(names).size, names.length, `${name}: no object is rendered twice`);
  }
  const different = new Map([...known.values()].flat().map((one) => [JSON.stringify(one), one]));
  t.same(unknownFields([...different.values()]), [], `${different.size} different objects`);
  t.end();
});

/** Parses the text of a document, validates its objects against the Kubernetes schemas, and returns them. */
function parsed(t: Test, combination: string, text: string): Manifest[] {
  const manifests = manifestsIn({ stdout: text });
  for (const manifest of manifests) {
    const kind = kinds.get(`${manifest.apiVersion} ${manifest.kind}`);
    t.doesNotThrow(() => kind?.validate(manifest), `${combination}: ${manifest.kind} ${manifest.metadata.name}`);
  }
  return manifests;
}

t.test('each pair of choices occurs in a combination', (t) => {
  const covered = new Set(combinations.flatMap(pairsOf));
  const names = Object.keys(dimensions);
  const missing: string[] = [];
  names.forEach((one, index) => {
    for (const other of names.slice(index + 1))
      for (const way of Object.keys(dimensions[one] ?? {}))
        for (const otherWay of Object.keys(dimensions[other] ?? {}))
          if (!covered.has(`${one}=${way}|${other}=${otherWay}`)) missing.push(`${way} with ${otherWay}`);
  });
  t.same(missing, []);
  t.end();
});

interface FormerObject {
  readonly object: string;
  readonly selector?: Readonly<Record<string, string>>;
}

t.test('the values of the previous release are accepted, and its objects can be upgraded', (t) => {
  const former = JSON.parse(readFileSync('test/helm/former/objects.json', 'utf8')) as Record<string, FormerObject[]>;
  t.same(Object.keys(former).toSorted(), [...profiles].toSorted());
  for (const profile of profiles) {
    const own = render(profile);
    // Suppose that an operator upgrades with a modified copy of the previous values.yaml. The defaults in that copy
    // must render the same objects as the new defaults, except for the memory limit, which was lower.
    const memory = ['--set', 'gateway.resources.limits.memory=1536Mi'];
    const copied = render(profile, {}, ['--values', 'test/helm/former/values.yaml', ...memory]);
    t.equal(copied.status, 0, copied.stderr);
    t.equal(copied.stdout, own.stdout, `${profile}: each value keeps its meaning`);
    const objects = new Map(
      manifestsIn(own).map((one) => [`${one.kind} ${one.metadata.name}`, one as unknown as { spec?: Selecting }]),
    );
    for (const { object, selector } of former[profile] ?? []) {
      t.ok(objects.has(object), `${profile}: ${object}`);
      if (selector !== undefined)
        t.same(objects.get(object)?.spec?.selector.matchLabels, selector, 'the selector is immutable in Kubernetes');
    }
  }
  t.end();
});

interface Selecting {
  readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
}
