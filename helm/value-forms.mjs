// What values may be that their defaults do not tell: empty lists and maps, null, and texts of a form.

const textMap = { type: 'object', additionalProperties: { type: 'string' } };
/** What Kubernetes takes as the value of a label; it would refuse others when half of a release is installed. */
const labelMap = {
  type: 'object',
  additionalProperties: { type: 'string', pattern: '^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$' },
};
const ports = { type: 'array', minItems: 1, items: { type: 'integer', minimum: 1, maximum: 65535 } };
const port = { type: 'integer', minimum: 1, maximum: 65535 };
const textOrNull = { type: ['string', 'null'] };
const share = { type: ['integer', 'string', 'null'], minimum: 0, pattern: '^[0-9]{1,3}%$' };
/** Those that select pods are the chart's own. */
const labels = {
  ...labelMap,
  propertyNames: { not: { pattern: '^app\\.kubernetes\\.io/(name|instance|component)$' } },
};
/** Handed to Kubernetes as they are, which has schemas of its own for them. */
const kubernetesObject = { type: 'object' };
const kubernetesObjects = { type: 'array', items: { type: 'object' } };
const kubernetesName = '^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$';
const nameOrEmpty = { type: 'string', pattern: `^$|${kubernetesName}` };
/** Of a Service, which may not begin with a digit, and short enough for the value of a label. */
const serviceNameOrEmpty = { type: 'string', pattern: '^$|^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$' };
const duration = { type: 'string', pattern: '^([0-9]+(h|m|s))+$' };
const cpu = { type: 'string', pattern: '^[0-9]+(\\.[0-9]+)?m?$' };
/** With its unit, or in bytes by the million: what is less was meant otherwise, and `m` are thousandths of a byte. */
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

/** One field of a schedule: a list of numbers, ranges and steps, as Kubernetes reads it. */
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
    valueFrom: kubernetesObject,
  },
  ['name'],
);
/** A name and one of the two that say its value. */
const variables = { type: 'array', items: { ...variable, maxProperties: 2 } };
const key = { type: 'string', pattern: '^[-._a-zA-Z0-9]{1,253}$' };
const secret = closed({ existingSecret: nameOrEmpty, key }, ['existingSecret', 'key']);
const ownSecret = closed({ existingSecret: nameOrEmpty, key, create: { type: ['boolean', 'null'] } }, [
  'existingSecret',
  'key',
]);
const destination = closed({ to: kubernetesObjects, ports }, ['to', 'ports']);
const gatewayConfig = { allOf: [{ $ref: '#/definitions/config' }] };

/** By the path of a value, or by its end; the first that fits. */
const forms = [
  [/^config$/, { $ref: '#/definitions/config' }],
  [/^gateway\.config$/, gatewayConfig],
  [/^environments\.\w+\.gateway$/, { $ref: '#/definitions/gatewayOverrides' }],
  [/^secrets\.recordSecret$/, ownSecret],
  [/^secrets\.\w+$/, secret],
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
  [/\.(maxUnavailable|minAvailable)$/, share],
  [/\.targetCPUUtilizationPercentage$/, { type: 'integer', minimum: 1, maximum: 100 }],
  [/\.(minReplicas|maxReplicas)$/, { type: 'integer', minimum: 1, maximum: 1000 }],
  [/\.resources$/, resources],
  [/\.topologySpreadConstraints$/, { type: ['array', 'null'], items: { type: 'object' } }],
  [/\.affinity$/, kubernetesObject],
  [/\.extraEnv$/, variables],
  [/\.(tolerations|extraVolumes|extraVolumeMounts|parentRefs)$/, kubernetesObjects],
  [/\.(clients|administrators|monitoring|alsoFrom)$/, kubernetesObjects],
  [/^networkPolicy\.egress\.\w+$/, destination],
  [/\.persistence\.size$/, bytes],
];

/** The form of a value, where its default does not tell it. */
export function formOf(path) {
  return forms.find(([pattern]) => pattern.test(path))?.[1];
}
