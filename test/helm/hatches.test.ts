import t from 'tap';
import type { Test } from 'tap';
import { kinds } from './kinds.js';
import { manifestsIn, render } from './render.js';
import type { Manifest } from './render.js';
import { unsaidSentences } from './sentences.js';
import { unknownFields } from './unknown-fields.js';

const sidecar = { name: 'shipper', image: 'shipper:1' };
const monitored = { monitoring: { serviceMonitor: { enabled: true } } };

/** Values above the profile live-tls, and what is said against them. */
const refusals: readonly (readonly [string, RegExp, object])[] = [
  [
    'root',
    /gateway\.podSecurityContext runs as root \(runAsUser 0\)/,
    ofGateway({ podSecurityContext: { runAsUser: 0 } }),
  ],
  [
    'root in one container',
    /registry\.securityContext runs as root/,
    ofRegistry({ securityContext: { runAsUser: 0 } }),
  ],
  [
    'root, if the image says so',
    /gateway\.podSecurityContext lets it run as root \(runAsNonRoot false\)/,
    ofGateway({ podSecurityContext: { runAsNonRoot: false } }),
  ],
  [
    'nothing against root',
    /registry\.podSecurityContext takes runAsNonRoot away/,
    ofRegistry({ podSecurityContext: { runAsNonRoot: null } }),
  ],
  [
    'a writable root',
    /gateway\.securityContext makes the root file system writable/,
    ofGateway({ securityContext: { readOnlyRootFilesystem: false } }),
  ],
  [
    'a root that may be writable',
    /gateway\.securityContext makes the root file system writable/,
    ofGateway({ securityContext: { readOnlyRootFilesystem: null } }),
  ],
  [
    'a writable root of one environment',
    /live: gateway\.securityContext makes the root file system writable/,
    { environments: { live: { gateway: { securityContext: { readOnlyRootFilesystem: false } } } } },
  ],
  ['all rights', /gateway\.securityContext is privileged/, ofGateway({ securityContext: { privileged: true } })],
  [
    'further rights',
    /gateway\.securityContext allows to gain rights/,
    ofGateway({ securityContext: { allowPrivilegeEscalation: true } }),
  ],
  [
    'what keeps from further rights taken away',
    /registry\.securityContext or podSecurityContext takes away/,
    ofRegistry({ securityContext: { allowPrivilegeEscalation: null } }),
  ],
  [
    'no filter of system calls',
    /gateway\.securityContext or podSecurityContext takes away/,
    ofGateway({ podSecurityContext: { seccompProfile: null } }),
  ],
  [
    'an empty filter of system calls',
    /gateway\.podSecurityContext has no seccompProfile \(Unconfined\)/,
    ofGateway({ podSecurityContext: { seccompProfile: { type: 'Unconfined' } } }),
  ],
  [
    'a capability',
    /gateway\.securityContext adds the capability SYS_ADMIN/,
    ofGateway({ securityContext: { capabilities: { drop: ['ALL'], add: ['NET_BIND_SERVICE', 'SYS_ADMIN'] } } }),
  ],
  [
    'the capabilities that every container has',
    /gateway\.securityContext keeps the capabilities/,
    ofGateway({ securityContext: { capabilities: { add: ['NET_BIND_SERVICE'] } } }),
  ],
  [
    "the node's processes",
    /gateway\.securityContext reaches into the node/,
    ofGateway({ securityContext: { procMount: 'Unmasked' } }),
  ],
  [
    'a container beside it with all rights',
    /registry\.extraContainers shipper is privileged/,
    ofRegistry({ extraContainers: [{ ...sidecar, securityContext: { privileged: true } }] }),
  ],
  [
    'a container before it as root',
    /gateway\.initContainers shipper runs as root/,
    ofGateway({ initContainers: [{ ...sidecar, securityContext: { runAsUser: 0 } }] }),
  ],
  [
    'two containers of one name',
    /gateway\.extraContainers shipper has the name of another container/,
    ofGateway({ initContainers: [sidecar], extraContainers: [sidecar] }),
  ],
  [
    "the name of the part's container",
    /registry\.extraContainers registry has the name of another container/,
    ofRegistry({ extraContainers: [{ ...sidecar, name: 'registry' }] }),
  ],
  [
    'a container that reads the private key',
    /gateway\.extraContainers shipper mounts tls, a secret of the product's own/,
    ofGateway({ extraContainers: [{ ...sidecar, volumeMounts: [{ name: 'tls', mountPath: '/tls' }] }] }),
  ],
  [
    'a container that reads the pepper',
    /mounts secret-key-pepper, a secret of the product's own/,
    ofGateway({ initContainers: [{ ...sidecar, volumeMounts: [{ name: 'secret-key-pepper', mountPath: '/p' }] }] }),
  ],
  [
    'a drain that is cut off',
    /gateway\.terminationGracePeriodSeconds is 30, and its drain takes up to 50/,
    ofGateway({ terminationGracePeriodSeconds: 30 }),
  ],
  [
    'a hook that takes the time of the drain',
    /gateway\.lifecycle\.preStop takes time that the drain then lacks: set gateway\.terminationGracePeriodSeconds to 50/,
    ofGateway({ lifecycle: { preStop: { exec: { command: ['node', '-e', '0'] } } } }),
  ],
  ['names from nowhere', /gateway\.dnsPolicy is None without/, ofGateway({ dnsPolicy: 'None' })],
  [
    'a port of the nodes for nobody',
    /nodePorts and healthCheckNodePort are of the types/,
    ofGateway({ service: { type: 'ClusterIP', nodePorts: { https: 30443 } } }),
  ],
  [
    'a port of the nodes twice',
    /has one port twice/,
    ofGateway({ service: { nodePorts: { https: 30443, http: 30443 } } }),
  ],
  [
    'a health port that nobody asks',
    /healthCheckNodePort is of a LoadBalancer/,
    ofGateway({ service: { type: 'NodePort', healthCheckNodePort: 30444 } }),
  ],
  [
    'an address of no load balancer',
    /loadBalancerIP and allocateLoadBalancerNodePorts are of the type LoadBalancer/,
    ofGateway({ service: { type: 'NodePort', allocateLoadBalancerNodePorts: false } }),
  ],
  [
    "client addresses that are nodes', by external addresses",
    /externalIPs with type ClusterIP replaces every client's address/,
    ofGateway({ service: { type: 'ClusterIP', externalIPs: ['203.0.113.5'] } }),
  ],
  [
    'a roll-out that never begins',
    /gateway\.rollingUpdate lets no pod be away and none be added/,
    ofGateway({ rollingUpdate: { maxUnavailable: '0%', maxSurge: 0 } }),
  ],
  [
    'a secret among the values',
    /extraObjects has the Secret pepper: nothing secret is in values/,
    { extraObjects: [{ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'pepper' } }] },
  ],
  [
    'an object that is none',
    /extraObjects has at place 1 what is no object/,
    { extraObjects: [configMap('a'), 'text'] },
  ],
  [
    'figures that nobody may read',
    /monitoring\.serviceMonitor has Prometheus read figures that networkPolicy\.monitoring lets nobody read/,
    monitored,
  ],
  // What the schema refuses: a typo at any depth is an error, also in an object of Kubernetes.
  [
    'a typo in a security context',
    /securityContext: Additional property readOnlyRootFilesytem/,
    ofGateway({ securityContext: { readOnlyRootFilesytem: true } }),
  ],
  [
    'a typo deep in a container',
    /extraContainers\.0\.resources: Additional property limit /,
    ofRegistry({ extraContainers: [{ ...sidecar, resources: { limit: {} } }] }),
  ],
  [
    'a container without a name',
    /initContainers\.0: name is required/,
    ofGateway({ initContainers: [{ image: 'a' }] }),
  ],
  ['a user that is no number', /runAsUser: Invalid type/, ofGateway({ podSecurityContext: { runAsUser: 'node' } })],
  [
    'a typo in a volume',
    /extraVolumes\.0: Additional property emptydir/,
    ofGateway({ extraVolumes: [{ name: 'a', emptydir: {} }] }),
  ],
  [
    'a typo in a toleration',
    /tolerations\.0: Additional property efect/,
    ofGateway({ tolerations: [{ efect: 'NoSchedule' }] }),
  ],
  ['a typo in an affinity', /affinity: Additional property podAffinty/, ofGateway({ affinity: { podAffinty: {} } })],
  ['a typo in a peer', /clients\.0: Additional property ipBlok/, { networkPolicy: { clients: [{ ipBlok: {} }] } }],
  [
    'a typo in a probe',
    /probes\.liveness: Additional property period/,
    ofGateway({ probes: { liveness: { period: 3 } } }),
  ],
  [
    'a probe of another kind',
    /probes\.readiness: Additional property exec/,
    ofGateway({ probes: { readiness: { exec: { command: ['true'] } } } }),
  ],
  [
    'a port of the nodes beyond all',
    /nodePorts\.https: Must be less/,
    ofGateway({ service: { nodePorts: { https: 70000 } } }),
  ],
  ['an alert that is none', /alerts: Additional property GatewayGone/, alerts({ GatewayGone: { for: '1m' } })],
  [
    'a threshold of an alert that has none',
    /alerts\.GatewayAway: Additional property threshold/,
    alerts({ GatewayAway: { threshold: 2 } }),
  ],
  [
    'a threshold of nothing',
    /GatewaySlow\.threshold: Must be greater than 0/,
    alerts({ GatewaySlow: { threshold: 0 } }),
  ],
  ['a base that is no URL', /runbookBaseUrl: Does not match/, { monitoring: { runbookBaseUrl: 'git.example/docs' } }],
  [
    'an object without a kind',
    /extraObjects\.0: kind is required/,
    { extraObjects: [{ apiVersion: 'v1', metadata: {} }] },
  ],
];

function ofGateway(gateway: object): object {
  return { gateway };
}

function ofRegistry(registry: object): object {
  return { registry };
}

function alerts(changes: object): object {
  return { monitoring: { prometheusRule: { enabled: true, alerts: changes } } };
}

function configMap(name: string): object {
  return { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } };
}

const said: string[] = [];
for (const [what, sentence, values] of refusals) {
  t.test(`refused: ${what}`, (t) => {
    const { status, stderr } = render('live-tls', values);
    said.push(stderr);
    t.equal(status, 1);
    t.match(stderr.replaceAll(/\s+/g, ' '), sentence);
    t.end();
  });
}

t.test('each sentence with which the chart refuses such values was said above', (t) => {
  const { all, unsaid } = unsaidSentences(['_safety-hatches.tpl'], said);
  t.ok(all >= 20, `${all} sentences`);
  t.same(unsaid, []);
  t.end();
});

interface Pod {
  readonly securityContext: Record<string, unknown>;
  readonly containers: readonly Record<string, unknown>[];
  readonly initContainers?: readonly Record<string, unknown>[];
  readonly [name: string]: unknown;
}

/** The pods of a Deployment or a Job, by the end of its name. */
function podOf(manifests: readonly Manifest[], name: string): Pod {
  const owner = manifests.find(
    ({ kind, metadata }) => ['Deployment', 'Job'].includes(kind) && metadata.name.endsWith(name),
  );
  return (owner as unknown as { spec: { template: { spec: Pod } } }).spec.template.spec;
}

/** Renders, and has Kubernetes' schemas look at all of it. */
function valid(t: Test, values: object, profile = 'live-tls'): Manifest[] {
  const rendered = render(profile, values);
  t.equal(rendered.status, 0, rendered.stderr);
  const manifests = manifestsIn(rendered);
  for (const manifest of manifests) {
    const kind = kinds.get(`${manifest.apiVersion} ${manifest.kind}`);
    t.doesNotThrow(() => kind?.validate(manifest), `${manifest.kind} ${manifest.metadata.name}`);
  }
  t.same(unknownFields(manifests), []);
  return manifests;
}

t.test('what a security context says is above the chart’s own, and null takes a field away', (t) => {
  const podSecurityContext = { runAsUser: null, runAsGroup: null, fsGroup: 1_000_700_000, supplementalGroups: [7] };
  const securityContext = { capabilities: { drop: ['ALL'], add: ['NET_BIND_SERVICE'] }, runAsUser: 1_000_700_001 };
  const manifests = valid(t, { gateway: { podSecurityContext, securityContext }, registry: { podSecurityContext } });
  for (const name of ['-live', '-live-check', '-registry']) {
    t.same(
      podOf(manifests, name).securityContext,
      {
        runAsNonRoot: true,
        fsGroup: 1_000_700_000,
        fsGroupChangePolicy: 'OnRootMismatch',
        supplementalGroups: [7],
        seccompProfile: { type: 'RuntimeDefault' },
      },
      `${name}: as OpenShift wants it, where the project gives the user`,
    );
  }
  const own = { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true };
  t.same(podOf(manifests, '-live').containers[0]?.securityContext, { ...own, ...securityContext });
  t.same(podOf(manifests, '-registry').containers[0]?.securityContext, { ...own, capabilities: { drop: ['ALL'] } });
  t.end();
});

t.test('added containers are in the pods that stay, and get no rights that they do not ask for', (t) => {
  const context = { securityContext: { readOnlyRootFilesystem: true, capabilities: { add: ['NET_BIND_SERVICE'] } } };
  const added = {
    extraContainers: [sidecar],
    initContainers: [{ name: 'proxy', image: 'proxy:1', restartPolicy: 'Always', ...context }],
    readinessGates: [{ conditionType: 'cloud.example/in-load-balancer' }],
  };
  const values = { gateway: added, registry: added, services: added };
  const manifests = valid(t, values, 'backing-services');
  for (const name of ['-live', '-registry', '-services']) {
    const { containers, initContainers, readinessGates } = podOf(manifests, name);
    t.equal(containers.length, 2, name);
    t.same(containers[1]?.securityContext, { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } });
    t.same(initContainers?.[0]?.securityContext, { allowPrivilegeEscalation: false, ...context.securityContext });
    t.same(readinessGates, added.readinessGates);
  }
  const job = podOf(manifests, '-services-migration');
  t.equal(job.containers.length, 1, 'a container that does not end would keep a Job from ending');
  t.match(job.initContainers, [{ name: 'proxy' }], 'a way to the database, say, it needs as well');
  const check = podOf(manifests, '-live-check');
  t.same([check.containers.length, check.initContainers, check.readinessGates], [1, undefined, undefined]);
  t.end();
});

t.test('variables of whole ConfigMaps and Secrets come before those of the chart, in Jobs too', (t) => {
  const envFrom = [
    { configMapRef: { name: 'common' } },
    { prefix: 'CORE_', secretRef: { name: 'core', optional: true } },
  ];
  const manifests = valid(t, { gateway: { envFrom }, services: { envFrom } }, 'backing-services');
  for (const name of ['-live', '-live-check', '-services', '-services-migration', '-services-check'])
    t.same(podOf(manifests, name).containers[0]?.envFrom, envFrom, name);
  t.notOk(podOf(manifests, '-registry').containers[0]?.envFrom);
  t.end();
});

t.test('hooks, times and probes are changed field by field', (t) => {
  const preStop = { exec: { command: ['node', '-e', 'setTimeout(() => {}, 1000)'] } };
  const gateway = {
    lifecycle: { preStop },
    terminationGracePeriodSeconds: 90,
    probes: { liveness: { periodSeconds: 20 }, readiness: { failureThreshold: 5 }, startup: { failureThreshold: 99 } },
    rollingUpdate: { maxUnavailable: '25%', maxSurge: 2 },
    minReadySeconds: 30,
    revisionHistoryLimit: 2,
    deploymentLabels: { tier: 'edge' },
    deploymentAnnotations: { 'example.com/owner': 'edge' },
  };
  const postStart = { exec: { command: ['node', '-e', '0'] } };
  const manifests = valid(t, { gateway, registry: { lifecycle: { postStart } } });
  const deployment = manifests.find(({ kind, metadata }) => kind === 'Deployment' && metadata.name.endsWith('-live'));
  t.match(deployment, {
    metadata: { labels: { tier: 'edge' }, annotations: { 'example.com/owner': 'edge' } },
    spec: {
      minReadySeconds: 30,
      revisionHistoryLimit: 2,
      strategy: { rollingUpdate: { maxUnavailable: '25%', maxSurge: 2 } },
    },
  });
  const pod = podOf(manifests, '-live');
  t.equal(pod.terminationGracePeriodSeconds, 90);
  t.match(pod.containers[0], {
    lifecycle: { preStop },
    startupProbe: { httpGet: { path: '/livez' }, periodSeconds: 2, failureThreshold: 99 },
    livenessProbe: { httpGet: { path: '/livez' }, periodSeconds: 20, failureThreshold: 6 },
    readinessProbe: { httpGet: { path: '/readyz' }, periodSeconds: 3, failureThreshold: 5 },
  });
  t.match(podOf(manifests, '-registry').containers[0]?.lifecycle, {
    postStart,
    preStop: { exec: { command: ['node', '-e', 'setTimeout(() => {}, 5000)'] } },
  });
  t.end();
});

t.test('further objects are rendered as templates, whether they are objects or texts', (t) => {
  const text = 'apiVersion: v1\nkind: ConfigMap\nmetadata: { name: "{{ .Release.Name }}-text" }\n';
  const object = { ...configMap('{{ .Release.Name }}-object'), data: { port: '{{ .Values.registry.servicePort }}' } };
  const manifests = valid(t, { extraObjects: [text, object] });
  t.ok(manifests.some(({ metadata }) => metadata.name === 'release-text'));
  t.match(
    manifests.find(({ metadata }) => metadata.name === 'release-object'),
    { data: { port: '9443' } },
  );
  t.end();
});

t.test('an account that is made elsewhere is used, and none is made', (t) => {
  const own = valid(t, { serviceAccount: { create: false, name: 'payments' } });
  t.notOk(own.some(({ kind }) => kind === 'ServiceAccount'));
  t.equal(podOf(own, '-live').serviceAccountName, 'payments');
  const annotations = { 'iam.example/role': 'payments' };
  const made = valid(t, { serviceAccount: { name: 'payments', annotations } });
  t.match(
    made.find(({ kind }) => kind === 'ServiceAccount'),
    { metadata: { name: 'payments', annotations }, automountServiceAccountToken: false },
  );
  t.equal(podOf(made, '-live').automountServiceAccountToken, false);
  t.end();
});

t.test('thresholds, times, severities and labels of alerts are values, and an alert can be switched off', (t) => {
  const changes = {
    GatewayUpstreamFailing: { threshold: 0.5, for: '1m', severity: 'page' },
    GatewayTorListOld: { threshold: 1_000_000 },
    GatewaySlow: { enabled: false },
  };
  const prometheusRule = { enabled: true, alerts: changes, alertLabels: { team: 'edge' } };
  const manifests = valid(t, { monitoring: { prometheusRule, runbookBaseUrl: 'https://git.example/gateway' } });
  const rule = manifests.find(({ kind }) => kind === 'PrometheusRule') as unknown as {
    spec: { groups: { rules: Rule[] }[] };
  };
  const rules = new Map(rule.spec.groups.flatMap(({ rules }) => rules).map((one) => [one.alert, one]));
  t.match(rules.get('GatewayUpstreamFailing'), {
    expr: / > 0\.5$/,
    for: '1m',
    labels: { severity: 'page', team: 'edge' },
    annotations: { runbook_url: 'https://git.example/gateway/docs/operations.md#gatewayupstreamfailing' },
  });
  t.match(rules.get('GatewayTorListOld')?.expr, / \/ 3600 > 1(?:e\+06|000000)$/);
  t.equal(rules.has('GatewaySlow'), false);
  t.match(rules.get('GatewayOverloaded'), { for: '1m', labels: { severity: 'critical', team: 'edge' } });
  t.end();
});

interface Rule {
  readonly alert: string;
  readonly expr: string;
}

t.test('the number of gateways that an alert expects is that of each environment', (t) => {
  const expected = (values: object): string[] => {
    const rendered = render('live-tls', { ...values, monitoring: { prometheusRule: { enabled: true } } });
    const rule = manifestsIn(rendered).find(({ kind }) => kind === 'PrometheusRule');
    const [, expr = ''] = /"expr":"(count by \(service\)(?:[^"\\]|\\.)*)"/.exec(JSON.stringify(rule)) ?? [];
    return [...expr.matchAll(/-(live|test)-management\\"}\) < (\d+)/g)].map(([, name, number]) => `${name}: ${number}`);
  };
  t.same(expected({}), ['live: 3']);
  t.same(expected({ environments: { test: { enabled: true, gateway: { replicas: 1 } } } }), ['live: 3', 'test: 1']);
  t.same(expected({ gateway: { autoscaling: { enabled: true, minReplicas: 5 } } }), ['live: 5']);
  t.end();
});

t.test(
  'figures that nobody may read are refused where the chart is installed, and a warning where it runs already',
  (t) => {
    const upgraded = render('live-tls', monitored, ['--is-upgrade']);
    t.equal(upgraded.status, 0, upgraded.stderr);
    t.equal(render('live-tls', { ...monitored, networkPolicy: { enabled: false } }).status, 0);
    t.end();
  },
);
