import t from 'tap';
import type { Test } from 'tap';
import { kinds } from './kinds.js';
import { manifestsIn, render } from './render.js';
import type { Manifest } from './render.js';
import { unsaidSentences } from './sentences.js';
import { unknownFields } from './unknown-fields.js';
import { testRefusals } from './verdicts.js';
import type { Refusals } from './verdicts.js';

const sidecar = { name: 'shipper', image: 'shipper:1' };
const monitored = { monitoring: { serviceMonitor: { enabled: true } } };

const refusals: Refusals = [
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
    'root allowed if the image uses it',
    /gateway\.podSecurityContext allows to run as root \(runAsNonRoot: false\)/,
    ofGateway({ podSecurityContext: { runAsNonRoot: false } }),
  ],
  [
    'runAsNonRoot removed',
    /registry\.podSecurityContext disables runAsNonRoot/,
    ofRegistry({ podSecurityContext: { runAsNonRoot: null } }),
  ],
  [
    'a writable root file system',
    /gateway\.securityContext makes the root file system writable/,
    ofGateway({ securityContext: { readOnlyRootFilesystem: false } }),
  ],
  [
    'readOnlyRootFilesystem removed',
    /gateway\.securityContext makes the root file system writable/,
    ofGateway({ securityContext: { readOnlyRootFilesystem: null } }),
  ],
  [
    'a writable root file system in one environment',
    /live: gateway\.securityContext makes the root file system writable/,
    { environments: { live: { gateway: { securityContext: { readOnlyRootFilesystem: false } } } } },
  ],
  [
    'a privileged container',
    /gateway\.securityContext is privileged/,
    ofGateway({ securityContext: { privileged: true } }),
  ],
  [
    'privilege escalation',
    /gateway\.securityContext allows privilege escalation/,
    ofGateway({ securityContext: { allowPrivilegeEscalation: true } }),
  ],
  [
    'allowPrivilegeEscalation removed',
    /registry\.securityContext or podSecurityContext weakens/,
    ofRegistry({ securityContext: { allowPrivilegeEscalation: null } }),
  ],
  [
    'no seccomp profile',
    /gateway\.securityContext or podSecurityContext weakens/,
    ofGateway({ podSecurityContext: { seccompProfile: null } }),
  ],
  [
    'an empty seccomp profile',
    /gateway\.podSecurityContext disables seccompProfile \(Unconfined\)/,
    ofGateway({ podSecurityContext: { seccompProfile: { type: 'Unconfined' } } }),
  ],
  [
    'an additional capability',
    /gateway\.securityContext adds the capability SYS_ADMIN/,
    ofGateway({ securityContext: { capabilities: { drop: ['ALL'], add: ['NET_BIND_SERVICE', 'SYS_ADMIN'] } } }),
  ],
  [
    'the default capabilities',
    /gateway\.securityContext does not drop the default capabilities/,
    ofGateway({ securityContext: { capabilities: { add: ['NET_BIND_SERVICE'] } } }),
  ],
  [
    'an unmasked /proc',
    /gateway\.securityContext gets access to the node/,
    ofGateway({ securityContext: { procMount: 'Unmasked' } }),
  ],
  [
    'a privileged sidecar',
    /registry\.extraContainers shipper is privileged/,
    ofRegistry({ extraContainers: [{ ...sidecar, securityContext: { privileged: true } }] }),
  ],
  [
    'an init container that runs as root',
    /gateway\.initContainers shipper runs as root/,
    ofGateway({ initContainers: [{ ...sidecar, securityContext: { runAsUser: 0 } }] }),
  ],
  [
    'two containers with the same name',
    /gateway\.extraContainers shipper has the name of another container/,
    ofGateway({ initContainers: [sidecar], extraContainers: [sidecar] }),
  ],
  [
    "an additional container with the name of the part's container",
    /registry\.extraContainers registry has the name of another container/,
    ofRegistry({ extraContainers: [{ ...sidecar, name: 'registry' }] }),
  ],
  [
    'a container that reads the private key',
    /gateway\.extraContainers shipper mounts tls, which contains secrets of merchant-gateway/,
    ofGateway({ extraContainers: [{ ...sidecar, volumeMounts: [{ name: 'tls', mountPath: '/tls' }] }] }),
  ],
  [
    'a container that reads the pepper',
    /mounts secret-key-pepper, which contains secrets of merchant-gateway/,
    ofGateway({ initContainers: [{ ...sidecar, volumeMounts: [{ name: 'secret-key-pepper', mountPath: '/p' }] }] }),
  ],
  [
    'a grace period shorter than the drain',
    /gateway\.terminationGracePeriodSeconds is 30, but draining takes up to 50 seconds/,
    ofGateway({ terminationGracePeriodSeconds: 30 }),
  ],
  [
    'a preStop hook that uses up the time of the drain',
    /gateway\.lifecycle\.preStop shortens the time for draining: set gateway\.terminationGracePeriodSeconds to 50/,
    ofGateway({ lifecycle: { preStop: { exec: { command: ['node', '-e', '0'] } } } }),
  ],
  ['dnsPolicy None without name servers', /gateway\.dnsPolicy is None without/, ofGateway({ dnsPolicy: 'None' })],
  [
    'a node port of a ClusterIP Service',
    /nodePorts and healthCheckNodePort need the type/,
    ofGateway({ service: { type: 'ClusterIP', nodePorts: { https: 30443 } } }),
  ],
  [
    'a duplicate node port',
    /has the same port twice/,
    ofGateway({ service: { nodePorts: { https: 30443, http: 30443 } } }),
  ],
  [
    'a health check node port that is unused',
    /healthCheckNodePort needs type LoadBalancer/,
    ofGateway({ service: { type: 'NodePort', healthCheckNodePort: 30444 } }),
  ],
  [
    'a load balancer option without a load balancer',
    /loadBalancerIP and allocateLoadBalancerNodePorts need the type LoadBalancer/,
    ofGateway({ service: { type: 'NodePort', allocateLoadBalancerNodePorts: false } }),
  ],
  [
    'external IPs, which hide client addresses',
    /externalIPs with type ClusterIP replaces the address of every client/,
    ofGateway({ service: { type: 'ClusterIP', externalIPs: ['203.0.113.5'] } }),
  ],
  [
    'a rolling update that cannot start',
    /gateway\.rollingUpdate allows neither an unavailable nor an additional pod/,
    ofGateway({ rollingUpdate: { maxUnavailable: '0%', maxSurge: 0 } }),
  ],
  [
    'a Secret in the values',
    /extraObjects has the Secret pepper, but Helm stores and shows all values/,
    { extraObjects: [{ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'pepper' } }] },
  ],
  [
    'an extra object without fields',
    /extraObjects: entry 1 is not a Kubernetes object/,
    { extraObjects: [configMap('a'), 'text'] },
  ],
  [
    'metrics that nothing can scrape',
    /monitoring\.serviceMonitor is enabled, but networkPolicy\.monitoring lets no pod scrape metrics/,
    monitored,
  ],
];

function ofGateway(gateway: object): object {
  return { gateway };
}

function ofRegistry(registry: object): object {
  return { registry };
}

function configMap(name: string): object {
  return { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } };
}

const outputs = testRefusals(refusals);

t.test('each rejection message for such values is tested above', (t) => {
  const { all, unsaid } = unsaidSentences(['_safety-hatches.tpl'], outputs);
  t.ok(all >= 20, `${all} messages`);
  t.same(unsaid, []);
  t.end();
});

interface Pod {
  readonly securityContext: Record<string, unknown>;
  readonly containers: readonly Record<string, unknown>[];
  readonly initContainers?: readonly Record<string, unknown>[];
  readonly [name: string]: unknown;
}

/** Returns the pod spec of the Deployment or Job whose name ends with `name`. */
function podOf(manifests: readonly Manifest[], name: string): Pod {
  const owner = manifests.find(
    ({ kind, metadata }) => ['Deployment', 'Job'].includes(kind) && metadata.name.endsWith(name),
  );
  return (owner as unknown as { spec: { template: { spec: Pod } } }).spec.template.spec;
}

/** Renders the chart, validates all objects against the Kubernetes schemas, and returns them. */
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

t.test("a given security context overrides the chart's own, and null removes a field", (t) => {
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
      `${name}: as on OpenShift, where the project assigns the user`,
    );
  }
  const own = { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true };
  t.same(podOf(manifests, '-live').containers[0]?.securityContext, { ...own, ...securityContext });
  t.same(podOf(manifests, '-registry').containers[0]?.securityContext, { ...own, capabilities: { drop: ['ALL'] } });
  t.end();
});

t.test('additional containers run in the Deployments, with no more privileges than they request', (t) => {
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
  t.equal(job.containers.length, 1, 'a container that does not end would keep the Job from completing');
  t.match(job.initContainers, [{ name: 'proxy' }], 'a sidecar such as a database proxy runs as an init container');
  const check = podOf(manifests, '-live-check');
  t.same([check.containers.length, check.initContainers, check.readinessGates], [1, undefined, undefined]);
  t.end();
});

t.test('variables from ConfigMaps and Secrets precede those of the chart, also in Jobs', (t) => {
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

t.test('hooks, times and probes are overridden by field', (t) => {
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

t.test('the startup probe allows for the wait for the first receipt', (t) => {
  const secondsWith = (accessLog: object): number => {
    const manifests = valid(t, { environments: { live: { gateway: { config: { accessLog } } } } });
    const [container] = podOf(manifests, '-live').containers;
    const { periodSeconds, failureThreshold } = container?.startupProbe as Record<string, number>;
    return Number(periodSeconds) * Number(failureThreshold);
  };
  t.equal(secondsWith({}), 62);
  t.equal(secondsWith({ checkpoints: { witness: { registerSeconds: 60 } } }), 120);
  t.equal(secondsWith({ checkpoints: { witness: { registerSeconds: 5 } } }), 66);
  t.equal(secondsWith({ checkpoints: { witness: { registerSeconds: 0 } } }), 60);
  t.equal(secondsWith({ checkpoints: null }), 62);
  t.end();
});

t.test('a preStop hook of the operator replaces the default, whatever its action', (t) => {
  for (const preStop of [{ sleep: { seconds: 7 } }, { httpGet: { port: 8080 } }, { exec: { command: ['true'] } }]) {
    const settings = { lifecycle: { preStop }, terminationGracePeriodSeconds: 90 };
    const manifests = valid(t, { registry: settings, services: settings }, 'backing-services');
    for (const name of ['-registry', '-services'])
      t.same(podOf(manifests, name).containers[0]?.lifecycle, { preStop }, 'Kubernetes accepts only one action');
  }
  t.end();
});

t.test('extra objects are rendered as templates, whether they are maps or strings', (t) => {
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

t.test('an existing service account is used, and none is created', (t) => {
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

t.test(
  'thresholds, durations, severities and labels of alerts are configurable, and each alert can be disabled',
  (t) => {
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
  },
);

interface Rule {
  readonly alert: string;
  readonly expr: string;
}

t.test('an alert expects the number of gateways of each environment', (t) => {
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

t.test('metrics that nothing can scrape are an error on install, and a warning on upgrade', (t) => {
  const upgraded = render('live-tls', monitored, ['--is-upgrade']);
  t.equal(upgraded.status, 0, upgraded.stderr);
  t.equal(render('live-tls', { ...monitored, networkPolicy: { enabled: false } }).status, 0);
  t.end();
});
