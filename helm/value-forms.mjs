// Schemas of chart values that `generate.mjs` cannot derive from a default: empty lists and maps, null, and texts with
// a format.
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { kubernetes } from './kubernetes-forms.mjs';

const textMap = { type: 'object', additionalProperties: { type: 'string' } };
/**
 * The label values that Kubernetes accepts. Without this check, Kubernetes would reject an object in the middle of an
 * installation.
 */
const labelMap = {
  type: 'object',
  additionalProperties: { type: 'string', pattern: '^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$' },
};
const ports = { type: 'array', minItems: 1, items: { type: 'integer', minimum: 1, maximum: 65535 } };
const port = { type: 'integer', minimum: 1, maximum: 65535 };
const textOrNull = { type: ['string', 'null'] };
const share = { type: ['integer', 'string', 'null'], minimum: 0, pattern: '^[0-9]{1,3}%$' };
/** Labels that an operator can add. The labels that select pods are excluded, because the chart sets them. */
const labels = {
  ...labelMap,
  propertyNames: { not: { pattern: '^app\\.kubernetes\\.io/(name|instance|component)$' } },
};
const listOf = (items) => ({ type: 'array', items });
const kubernetesName = '^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$';
const nameOrEmpty = { type: 'string', pattern: `^$|${kubernetesName}` };
/**
 * The name of a Service, or empty. It must begin with a letter, and is at most 63 characters long, because labels
 * contain it.
 */
const serviceNameOrEmpty = { type: 'string', pattern: '^$|^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$' };
const duration = { type: 'string', pattern: '^([0-9]+(h|m|s))+$' };
const cpu = { type: 'string', pattern: '^[0-9]+(\\.[0-9]+)?m?$' };
/**
 * An amount of memory or storage, with a unit or as at least seven digits of bytes. Fewer bytes are surely a mistake.
 * So is the unit `m`, a thousandth of a byte.
 */
const bytes = { type: 'string', pattern: '^([0-9]+(\\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)|[0-9]{7,})$' };
const amounts = { cpu, memory: bytes, 'ephemeral-storage': bytes };

const octet = '(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])';
const network4 = `${octet}(\\.${octet}){3}/(3[0-2]|[12]?[0-9])`;
const network6 = '[0-9a-fA-F]{0,4}:[0-9a-fA-F:.]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9])';
const networks = {
  type: 'array',
  uniqueItems: true,
  items: { type: 'string', pattern: `^(${network4}|${network6})$` },
};
const hostLabel = '[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?';
const host = {
  type: 'string',
  maxLength: 253,
  pattern: `^(\\*\\.)?(${hostLabel}\\.)*[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`,
};
const hosts = { type: 'array', uniqueItems: true, items: host };

const imagePart = '[a-z0-9]+([._-]+[a-z0-9]+)*';
const image = { type: 'string', pattern: `^(${imagePart}(:[0-9]{1,5})?/)?${imagePart}(/${imagePart})*$` };

/**
 * Returns a pattern for one field of a cron schedule: a comma-separated list of numbers, ranges and steps, as in
 * Kubernetes.
 * @param number pattern of one number
 */
function scheduleField(number) {
  const part = `(\\*|(${number})(-(${number}))?)(/[1-9][0-9]*)?`;
  return `${part}(,${part})*`;
}
const months = 'JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC';
const weekdays = 'SUN|MON|TUE|WED|THU|FRI|SAT';
const scheduleFields = [
  '[0-5]?[0-9]',
  '2[0-3]|[01]?[0-9]',
  '3[01]|[12][0-9]|0?[1-9]',
  `1[0-2]|0?[1-9]|${months}|${months.toLowerCase()}`,
  `[0-6]|${weekdays}|${weekdays.toLowerCase()}`,
];
const schedule = {
  type: 'string',
  pattern: `^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|${scheduleFields.map(scheduleField).join(' +')})$`,
};

function closed(properties, required = []) {
  return { type: 'object', additionalProperties: false, required, properties };
}

const resources = closed({ requests: closed(amounts), limits: closed(amounts) });
const variable = closed(
  {
    name: { type: 'string', pattern: '^[-._a-zA-Z][-._a-zA-Z0-9]*$' },
    value: { type: 'string' },
    valueFrom: kubernetes('EnvVarSource'),
  },
  ['name'],
);
/** Environment variables: each has a name, and either `value` or `valueFrom`. */
const variables = { type: 'array', items: { ...variable, maxProperties: 2 } };
const key = { type: 'string', pattern: '^[-._a-zA-Z0-9]{1,253}$' };
const secret = closed({ existingSecret: nameOrEmpty, key }, ['existingSecret', 'key']);
const ownSecret = closed({ existingSecret: nameOrEmpty, key, create: { type: ['boolean', 'null'] } }, [
  'existingSecret',
  'key',
]);
const ownPair = closed({ existingSecret: nameOrEmpty, key, publicKey: key, create: { type: ['boolean', 'null'] } }, [
  'existingSecret',
  'key',
  'publicKey',
]);
const peers = listOf(kubernetes('NetworkPolicyPeer'));
const destination = closed({ to: peers, ports }, ['to', 'ports']);
const nodePort = { type: ['integer', 'null'], minimum: 1, maximum: 65535 };
const orNull = (values) => ({ enum: [...values, null] });
const gatewayConfig = { allOf: [{ $ref: '#/definitions/config' }] };

const seconds = { type: 'integer', minimum: 1, maximum: 3600 };
const probe = closed({
  initialDelaySeconds: { ...seconds, minimum: 0 },
  periodSeconds: seconds,
  timeoutSeconds: seconds,
  failureThreshold: seconds,
  terminationGracePeriodSeconds: seconds,
});
const parentRef = closed(
  {
    group: { type: 'string' },
    kind: { type: 'string' },
    namespace: nameOrEmpty,
    name: { type: 'string', pattern: kubernetesName },
    sectionName: { type: 'string' },
    port,
  },
  ['name'],
);
const relabeling = closed({
  sourceLabels: listOf({ type: 'string' }),
  separator: { type: 'string' },
  targetLabel: { type: 'string' },
  regex: { type: 'string' },
  modulus: { type: 'integer', minimum: 1 },
  replacement: { type: 'string' },
  action: { type: 'string' },
});

/**
 * Builds the schema of an operator's changes to one alert. `threshold` is allowed only if the alert's expression ends
 * with a comparison with a number other than 0.
 */
function changesOf({ expr }) {
  const hasThreshold = /[<>] (?!0$)[0-9.]+$/.test(expr);
  return closed({
    enabled: { type: 'boolean' },
    for: duration,
    severity: { type: 'string', pattern: '^[a-zA-Z0-9_-]{1,63}$' },
    ...(hasThreshold ? { threshold: { type: 'number', exclusiveMinimum: 0 } } : {}),
  });
}
const { groups } = parse(readFileSync(new URL('files/alerts.yaml', import.meta.url), 'utf8'));
const alertChanges = closed(
  Object.fromEntries(groups.flatMap(({ rules }) => rules.map((rule) => [rule.alert, changesOf(rule)]))),
);

/** Pairs of a pattern for the path of a value, and the schema of the value. The first pattern that matches applies. */
const forms = [
  [/^config$/, { $ref: '#/definitions/config' }],
  [/^gateway\.config$/, gatewayConfig],
  [/^environments\.\w+\.gateway$/, { $ref: '#/definitions/gatewayOverrides' }],
  [/^secrets\.(recordSecret|instanceKey|witnessKey)$/, ownSecret],
  [/^secrets\.servicesTokenKey$/, ownPair],
  [/^secrets\.\w+$/, secret],
  [/^registry\.tls\.create$/, { type: ['boolean', 'null'] }],
  [/\.createDatabase$/, { type: ['boolean', 'null'] }],
  [/^torExits\.key$/, key],
  [/\.schedule$/, schedule],
  [/(existingSecret|existingConfigMap|tlsSecret|existingClaim)$/, nameOrEmpty],
  [/^(nameOverride|fullnameOverride)$/, serviceNameOrEmpty],
  [/^image\.pullSecrets$/, { type: 'array', items: closed({ name: { type: 'string' } }, ['name']) }],
  [/^image\.pullPolicy$/, { enum: ['Always', 'IfNotPresent', 'Never'] }],
  [/^image\.digest$/, { type: 'string', pattern: '^$|^sha256:[0-9a-f]{64}$' }],
  [/^image\.repository$/, image],
  [/^image\.tag$/, { type: 'string', pattern: '^$|^[a-zA-Z0-9_][-.a-zA-Z0-9_]{0,127}$' }],
  [/^networkPolicy\..*[lL]abels$/, labelMap],
  [/[lL]abels$/, labels],
  [/[aA]nnotations$/, textMap],
  [/\.nodeSelector$/, labelMap],
  [/^gateway\.replicas$/, { type: ['integer', 'null'], minimum: 0 }],
  [/^gateway\.drainDelaySeconds$/, { type: 'integer', minimum: 1, maximum: 300 }],
  [/\.listenAddress$/, { enum: ['0.0.0.0', '::'] }],
  [
    /\.issuerRef$/,
    closed({
      name: { type: 'string' },
      kind: { enum: ['Issuer', 'ClusterIssuer'] },
      group: { type: 'string', minLength: 1 },
    }),
  ],
  [/\.(duration|renewBefore|interval)$/, duration],
  [/\.(dnsNames|hosts|hostnames)$/, hosts],
  [/\.loadBalancerSourceRanges$/, networks],
  [/\.service\.type$/, { enum: ['ClusterIP', 'LoadBalancer', 'NodePort'] }],
  [/\.externalTrafficPolicy$/, { enum: ['Local', 'Cluster', null] }],
  [/\.ipFamilyPolicy$/, { enum: ['SingleStack', 'PreferDualStack', 'RequireDualStack', null] }],
  [/\.ipFamilies$/, { type: 'array', maxItems: 2, uniqueItems: true, items: { enum: ['IPv4', 'IPv6'] } }],
  [/\.(loadBalancerClass|storageClass)$/, textOrNull],
  [/\.(httpsPort|httpPort|servicePort)$/, port],
  [/\.route\.kind$/, { enum: ['HTTPRoute', 'TLSRoute'] }],
  [/\.rollingUpdate\.\w+$/, { type: ['integer', 'string'], minimum: 0, pattern: '^[0-9]{1,3}%$' }],
  [/\.(maxUnavailable|minAvailable)$/, share],
  [/\.targetCPUUtilizationPercentage$/, { type: 'integer', minimum: 1, maximum: 100 }],
  [/\.(minReplicas|maxReplicas)$/, { type: 'integer', minimum: 1, maximum: 1000 }],
  [/\.resources$/, resources],
  [/\.topologySpreadConstraints$/, { type: ['array', 'null'], items: kubernetes('TopologySpreadConstraint') }],
  [/\.affinity$/, kubernetes('Affinity')],
  [/\.extraEnv$/, variables],
  [/\.tolerations$/, listOf(kubernetes('Toleration'))],
  [/\.extraVolumes$/, listOf(kubernetes('Volume'))],
  [/\.extraVolumeMounts$/, listOf(kubernetes('VolumeMount'))],
  [/\.parentRefs$/, listOf(parentRef)],
  [/\.(clients|administrators|monitoring|alsoFrom)$/, peers],
  [/^networkPolicy\.egress\.\w+$/, destination],
  [/\.persistence\.size$/, bytes],
  [
    /\.persistence\.accessModes$/,
    { ...listOf({ enum: ['ReadWriteOnce', 'ReadWriteOncePod', 'ReadWriteMany'] }), minItems: 1 },
  ],
  [/\.envFrom$/, listOf(kubernetes('EnvFromSource'))],
  [/\.podSecurityContext$/, kubernetes('PodSecurityContext')],
  [/\.securityContext$/, kubernetes('SecurityContext')],
  [/\.(extraContainers|initContainers)$/, listOf(kubernetes('Container'))],
  [/\.lifecycle$/, kubernetes('Lifecycle')],
  [/\.terminationGracePeriodSeconds$/, { type: ['integer', 'null'], minimum: 1, maximum: 7200 }],
  [/\.probes\.\w+$/, probe],
  [/\.readinessGates$/, listOf(kubernetes('PodReadinessGate'))],
  [/\.hostAliases$/, listOf(kubernetes('HostAlias'))],
  [/\.dnsPolicy$/, orNull(['ClusterFirst', 'ClusterFirstWithHostNet', 'Default', 'None'])],
  [/\.dnsConfig$/, kubernetes('PodDNSConfig')],
  [/\.(runtimeClassName|schedulerName|priorityClassName)$/, nameOrEmpty],
  [/\.nodePorts\.\w+$/, nodePort],
  [/\.healthCheckNodePort$/, nodePort],
  [/\.loadBalancerIP$/, { type: 'string', pattern: `^$|^${octet}(\\.${octet}){3}$|^[0-9a-fA-F]{0,4}:[0-9a-fA-F:.]+$` }],
  [
    /\.externalIPs$/,
    listOf({ type: 'string', pattern: `^${octet}(\\.${octet}){3}$|^[0-9a-fA-F]{0,4}:[0-9a-fA-F:.]+$` }),
  ],
  [/\.allocateLoadBalancerNodePorts$/, { type: ['boolean', 'null'] }],
  [/\.sessionAffinity$/, orNull(['None', 'ClientIP'])],
  [/\.internalTrafficPolicy$/, orNull(['Cluster', 'Local'])],
  [/\.targetMemoryUtilizationPercentage$/, { type: ['integer', 'null'], minimum: 1, maximum: 100 }],
  [/\.autoscaling\.metrics$/, listOf(kubernetes('MetricSpec'))],
  [/\.autoscaling\.behavior$/, kubernetes('HorizontalPodAutoscalerBehavior')],
  [/^networkPolicy\.extraIngress\.\w+$/, listOf(kubernetes('NetworkPolicyIngressRule'))],
  [/^networkPolicy\.extraEgress\.\w+$/, listOf(kubernetes('NetworkPolicyEgressRule'))],
  [/^monitoring\.runbookBaseUrl$/, { type: 'string', pattern: '^$|^https?://[^\\s?#]*[^\\s?#/]$' }],
  [/\.scrapeTimeout$/, { ...duration, type: ['string', 'null'] }],
  [/\.(relabelings|metricRelabelings)$/, listOf(relabeling)],
  [/^monitoring\.prometheusRule\.alerts$/, alertChanges],
  [/^serviceAccount\.name$/, nameOrEmpty],
  [
    /^extraObjects$/,
    listOf({ type: ['object', 'string'], required: ['apiVersion', 'kind', 'metadata'], minLength: 1 }),
  ],
];

/** Returns the schema of a value by its path; undefined if `generate.mjs` derives the schema from the default. */
export function formOf(path) {
  return forms.find(([pattern]) => pattern.test(path))?.[1];
}
