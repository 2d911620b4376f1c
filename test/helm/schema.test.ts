import { readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import { parse } from 'yaml';
import { merged } from './merged.js';
import { render } from './render.js';

/** What is wrong, the beginning of the line that reports it, and the values on top of the profile live-tls. */
type Mistake = readonly [what: string, line: string, values: object];

const sidecar = { name: 'shipper', image: 'shipper:1' };

const mistakes: readonly Mistake[] = [
  ['an unknown value', 'gateway: Additional property servce is not allowed', { gateway: { servce: {} } }],
  [
    'an unknown value in an environment',
    'environments.live.gateway: Additional property x is not allowed',
    { environments: { live: { gateway: { x: 1 } } } },
  ],
  ['an invalid name', 'fullnameOverride: Does not match', { fullnameOverride: '1-gateway' }],
  ['a name with dots', 'nameOverride: Does not match', { nameOverride: 'a.b' }],
  ['a label value with a space', 'commonLabels.team: Does not match', { commonLabels: { team: 'the payments' } }],
  ['a label value of 64 characters', 'commonLabels.team: Does not match', { commonLabels: { team: 'a'.repeat(64) } }],
  [
    'a label value that ends with a hyphen',
    'networkPolicy.protectRedis.podLabels.app: Does not match',
    { networkPolicy: { protectRedis: { enabled: true, podLabels: { app: 'redis-' } } } },
  ],
  [
    'a node selector with an invalid label value',
    'gateway.nodeSelector.zone: Does not match',
    { gateway: { nodeSelector: { zone: 'a/b' } } },
  ],
  ['an unknown option in config', 'config: Additional property foo is not allowed', { config: { foo: 1 } }],
  [
    'an option in config that the chart sets',
    'config: Additional property environment is not allowed',
    { config: { environment: 'test' } },
  ],
  ['a string instead of a number', 'gateway.replicas: Invalid type', { gateway: { replicas: '3' } }],
  ['an unknown secret', 'secrets: Additional property pepper is not allowed', { secrets: { pepper: {} } }],
  [
    'a secret written into the values',
    'secrets.keyPepper: Additional property value is not allowed',
    { secrets: { keyPepper: { value: 'x' } } },
  ],
  // A null removes a default before helm compares the values with the schema.
  ['environments.live removed', 'environments: live is required', { environments: { live: null } }],
  ['config removed', '(root): config is required', { config: null }],
  ['gateway removed', '(root): gateway is required', { gateway: null }],
  ['gateway.config removed', 'gateway: config is required', { gateway: { config: null } }],
  ['gateway.tls removed', 'gateway: tls is required', { gateway: { tls: null } }],
  [
    'gateway.podDisruptionBudget removed',
    'gateway: podDisruptionBudget is required',
    { gateway: { podDisruptionBudget: null } },
  ],
  [
    'gateway.service.httpsPort removed',
    'gateway.service: httpsPort is required',
    { gateway: { service: { httpsPort: null } } },
  ],
  ['secrets removed', '(root): secrets is required', { secrets: null }],
  ['secrets.keyPepper removed', 'secrets: keyPepper is required', { secrets: { keyPepper: null } }],
  ['secrets.keyPepper.key removed', 'secrets.keyPepper: key is required', { secrets: { keyPepper: { key: null } } }],
  ['image removed', '(root): image is required', { image: null }],
  ['monitoring removed', '(root): monitoring is required', { monitoring: null }],
  ['networkPolicy removed', '(root): networkPolicy is required', { networkPolicy: null }],
  [
    'networkPolicy.egress.redis removed',
    'networkPolicy.egress: redis is required',
    { networkPolicy: { egress: { redis: null } } },
  ],
  ['registry.replicas removed', 'registry: replicas is required', { registry: { replicas: null } }],
  [
    'gateway.tls removed in an environment',
    'environments.live.gateway.tls: Invalid type',
    { environments: { live: { gateway: { tls: null } } } },
  ],
  // Resources, networks and names.
  [
    'a memory limit in milli-bytes (m)',
    'gateway.resources.limits.memory: Does not match',
    { gateway: { resources: { limits: { memory: '512m' } } } },
  ],
  [
    'a memory limit without a unit',
    'registry.resources.limits.memory: Does not match',
    { registry: { resources: { limits: { memory: '512' } } } },
  ],
  [
    'a CPU request in bytes',
    'registry.resources.requests.cpu: Does not match',
    { registry: { resources: { requests: { cpu: '1Gi' } } } },
  ],
  [
    'an address instead of a network',
    'gateway.service.loadBalancerSourceRanges.0: Does not match',
    { gateway: { service: { loadBalancerSourceRanges: ['203.0.113.0'] } } },
  ],
  [
    'a network prefix longer than 32 bits',
    'gateway.service.loadBalancerSourceRanges.1: Does not match',
    { gateway: { service: { loadBalancerSourceRanges: ['2001:db8::/32', '203.0.113.0/33'] } } },
  ],
  [
    'a DNS name with a scheme',
    'gateway.tls.certManager.dnsNames.0: Does not match',
    { gateway: { tls: { certManager: { dnsNames: ['https://api.example.com'] } } } },
  ],
  [
    'a duplicate DNS name',
    'gateway.tls.certManager.dnsNames: array items[0,1] must be unique',
    { gateway: { tls: { certManager: { dnsNames: ['a.example', 'a.example'] } } } },
  ],
  [
    'an IP address instead of a host',
    'gateway.ingress.hosts.0: Does not match',
    { gateway: { ingress: { hosts: ['203.0.113.9'] } } },
  ],
  [
    'a host with a port',
    'gateway.route.hostnames.0: Does not match',
    { gateway: { route: { hostnames: ['api.example.com:443'] } } },
  ],
  // The image.
  ['an invalid image tag', 'image.tag: Does not match', { image: { tag: 'a b' } }],
  ['an image repository with a tag', 'image.repository: Does not match', { image: { repository: 'repo:1.2' } }],
  [
    'an image repository with a digest',
    'image.repository: Does not match',
    { image: { repository: 'repo@sha256:12' } },
  ],
  [
    'an image repository with upper-case letters',
    'image.repository: Does not match',
    { image: { repository: 'registry.example/Gateway' } },
  ],
  // Additional variables and volumes.
  [
    'an environment variable without a name',
    'gateway.extraEnv.0: name is required',
    { gateway: { extraEnv: [{ value: 'a' }] } },
  ],
  [
    'an environment variable with a number as its value',
    'registry.extraEnv.0.value: Invalid type',
    { registry: { extraEnv: [{ name: 'A', value: 1 }] } },
  ],
  [
    'an environment variable with value and valueFrom',
    'gateway.extraEnv.0: Must have at most 2 properties',
    { gateway: { extraEnv: [{ name: 'A', value: 'a', valueFrom: {} }] } },
  ],
  [
    'a volume without a name',
    'registry.extraVolumes.0: name is required',
    { registry: { extraVolumes: [{ emptyDir: {} }] } },
  ],
  ...['hourly', '99 99 * * *', '@foo', '*/0 * * * *', '0 0 * * 8', '0 0 0 * *'].map(
    (schedule) =>
      [
        `the schedule ${schedule}`,
        'torExits.cronJob.schedule: Does not match',
        { torExits: { cronJob: { schedule } } },
      ] as const,
  ),
  // A typo at any depth, also in a Kubernetes object.
  [
    'a typo in a security context',
    'gateway.securityContext: Additional property readOnlyRootFilesytem is not allowed',
    { gateway: { securityContext: { readOnlyRootFilesytem: true } } },
  ],
  [
    'a typo deep in a container',
    'registry.extraContainers.0.resources: Additional property limit is not allowed',
    { registry: { extraContainers: [{ ...sidecar, resources: { limit: {} } }] } },
  ],
  [
    'a container without a name',
    'gateway.initContainers.0: name is required',
    { gateway: { initContainers: [{ image: 'a' }] } },
  ],
  [
    'a user id that is not a number',
    'gateway.podSecurityContext.runAsUser: Invalid type',
    { gateway: { podSecurityContext: { runAsUser: 'node' } } },
  ],
  [
    'a typo in a volume',
    'gateway.extraVolumes.0: Additional property emptydir is not allowed',
    { gateway: { extraVolumes: [{ name: 'a', emptydir: {} }] } },
  ],
  [
    'a typo in a toleration',
    'gateway.tolerations.0: Additional property efect is not allowed',
    { gateway: { tolerations: [{ efect: 'NoSchedule' }] } },
  ],
  [
    'a typo in an affinity',
    'gateway.affinity: Additional property podAffinty is not allowed',
    { gateway: { affinity: { podAffinty: {} } } },
  ],
  [
    'a typo in a peer',
    'networkPolicy.clients.0: Additional property ipBlok is not allowed',
    { networkPolicy: { clients: [{ ipBlok: {} }] } },
  ],
  [
    'a typo in a probe',
    'gateway.probes.liveness: Additional property period is not allowed',
    { gateway: { probes: { liveness: { period: 3 } } } },
  ],
  [
    'a probe with a different handler',
    'gateway.probes.readiness: Additional property exec is not allowed',
    { gateway: { probes: { readiness: { exec: { command: ['true'] } } } } },
  ],
  [
    'a node port out of range',
    'gateway.service.nodePorts.https: Must be less',
    { gateway: { service: { nodePorts: { https: 70000 } } } },
  ],
  [
    'an unknown alert',
    'monitoring.prometheusRule.alerts: Additional property GatewayGone is not allowed',
    alerts({ GatewayGone: { for: '1m' } }),
  ],
  [
    'a threshold for an alert without one',
    'monitoring.prometheusRule.alerts.GatewayAway: Additional property threshold is not allowed',
    alerts({ GatewayAway: { threshold: 2 } }),
  ],
  [
    'an invalid threshold',
    'monitoring.prometheusRule.alerts.GatewaySlow.threshold: Must be greater than 0',
    alerts({ GatewaySlow: { threshold: 0 } }),
  ],
  [
    'a runbook base that is not a URL',
    'monitoring.runbookBaseUrl: Does not match',
    { monitoring: { runbookBaseUrl: 'git.example/docs' } },
  ],
  [
    'an object without a kind',
    'extraObjects.0: kind is required',
    { extraObjects: [{ apiVersion: 'v1', metadata: {} }] },
  ],
];

function alerts(changes: object): object {
  return { monitoring: { prometheusRule: { enabled: true, alerts: changes } } };
}

/** Groups mistakes whose values do not overlap: merging them in either order gives the same result. */
function groupsOf(all: readonly Mistake[]): { readonly values: object; readonly group: readonly Mistake[] }[] {
  const groups: { values: object; group: Mistake[] }[] = [];
  for (const mistake of all) {
    const [, , own] = mistake;
    const fitting = groups.find(({ values }) => isDeepStrictEqual(merged(values, own), merged(own, values)));
    if (fitting === undefined) groups.push({ values: own, group: [mistake] });
    else {
      fitting.values = merged(fitting.values, own) as object;
      fitting.group.push(mistake);
    }
  }
  return groups;
}

t.test('every mistake in the values is reported at its place', (t) => {
  // Many mistakes per rendering; each of them has its own line, and there are no other lines.
  for (const { values, group } of groupsOf(mistakes)) {
    const { status, stderr } = render('live-tls', values);
    t.equal(status, 1);
    const lines: readonly string[] = stderr.match(/^- .*$/gm) ?? [];
    const reportsOf = ([, line]: Mistake): string[] => lines.filter((one) => one.startsWith(`- ${line}`));
    for (const mistake of group) t.equal(reportsOf(mistake).length, 1, mistake[0]);
    t.same(group.flatMap(reportsOf).toSorted(), lines.toSorted(), 'each line reports one of the mistakes');
  }
  t.end();
});

t.test('a label that the chart sets is rejected', (t) => {
  // Not one of `mistakes`, because the schema reports this label in two lines.
  const { status, stderr } = render('live-tls', { commonLabels: { 'app.kubernetes.io/component': 'everything' } });
  t.equal(status, 1);
  t.match(stderr, /^- commonLabels: .*component/m);
  t.end();
});

t.test('a list instead of a map, a map instead of a list, and a string instead of either are rejected', (t) => {
  const wrong: [string, object][] = [];
  const walk = (value: unknown, place: readonly string[]): void => {
    if (typeof value !== 'object' || value === null) return;
    const nest = (inner: unknown): object =>
      place.reduceRight<unknown>((within, name) => ({ [name]: within }), inner) as object;
    const path = place.join('.');
    if (place.length > 0) wrong.push([path, nest(Array.isArray(value) ? { a: 1 } : ['a'])], [path, nest('a')]);
    if (place.length > 0 && !Array.isArray(value)) wrong.push([path, nest([])]);
    if (!Array.isArray(value)) for (const [name, inner] of Object.entries(value)) walk(inner, [...place, name]);
  };
  walk(parse(readFileSync('helm/values.yaml', 'utf8')), []);
  t.ok(wrong.length > 250, `${wrong.length} mistakes`);
  // Many mistakes per rendering; each of them must be reported.
  const byPlace = new Map<string, object[]>();
  for (const [place, values] of wrong) byPlace.set(place, [...(byPlace.get(place) ?? []), values]);
  for (let round = 0; round < 3; round += 1) {
    const chosen = [...byPlace].flatMap(([place, all]) => {
      const values = all[round];
      return values === undefined ? [] : [[place, values] as const];
    });
    for (const depth of new Set(chosen.map(([place]) => place.split('.').length))) {
      const ofDepth = chosen.filter(([place]) => place.split('.').length === depth);
      const values = ofDepth.reduce<unknown>((all, [, one]) => merged(all, one), {});
      const { status, stderr } = render('live-tls', values as object);
      t.equal(status, 1);
      for (const [place] of ofDepth)
        t.match(stderr, new RegExp(`^- ${place.replaceAll('.', '\\.')}: (?:Invalid type|Must validate)`, 'm'), place);
    }
  }
  t.end();
});
