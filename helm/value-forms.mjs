// What values may be that their defaults do not tell: empty lists and maps, null, and texts of a form.

const texts = { type: 'array', items: { type: 'string', minLength: 1 } };
const textMap = { type: 'object', additionalProperties: { type: 'string' } };
const ports = { type: 'array', minItems: 1, items: { type: 'integer', minimum: 1, maximum: 65535 } };
const port = { type: 'integer', minimum: 1, maximum: 65535 };
const textOrNull = { type: ['string', 'null'] };
const share = { type: ['integer', 'string', 'null'], minimum: 0, pattern: '^[0-9]{1,3}%$' };
/** Those that select pods are the chart's own. */
const labels = { ...textMap, propertyNames: { not: { pattern: '^app\\.kubernetes\\.io/(name|instance|component)$' } } };
/** Handed to Kubernetes as they are, which has schemas of its own for them. */
const kubernetesObject = { type: 'object' };
const kubernetesObjects = { type: 'array', items: { type: 'object' } };
const kubernetesName = '^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$';
const nameOrEmpty = { type: 'string', pattern: `^$|${kubernetesName}` };
/** Of a Service, which may not begin with a digit, and short enough for the value of a label. */
const serviceNameOrEmpty = { type: 'string', pattern: '^$|^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$' };
const duration = { type: 'string', pattern: '^([0-9]+(h|m|s))+$' };
const quantity = { type: 'string', pattern: '^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$' };

function closed(properties, required = []) {
  return { type: 'object', additionalProperties: false, required, properties };
}

const resources = closed({
  requests: closed({ cpu: quantity, memory: quantity, 'ephemeral-storage': quantity }),
  limits: closed({ cpu: quantity, memory: quantity, 'ephemeral-storage': quantity }),
});
const key = { type: 'string', pattern: '^[-._a-zA-Z0-9]{1,253}$' };
const secret = closed({ existingSecret: nameOrEmpty, key }, ['existingSecret', 'key']);
const destination = closed({ to: kubernetesObjects, ports }, ['to', 'ports']);
const gatewayConfig = { allOf: [{ $ref: '#/definitions/config' }] };

/** By the path of a value, or by its end; the first that fits. */
const forms = [
  [/^config$/, { $ref: '#/definitions/config' }],
  [/^gateway\.config$/, gatewayConfig],
  [/^environments\.\w+\.gateway$/, { $ref: '#/definitions/gatewayOverrides' }],
  [/^secrets\.\w+$/, secret],
  [/^torExits\.key$/, key],
  [/\.schedule$/, { type: 'string', pattern: '^(@[a-z]+|([-0-9*/,A-Za-z]+ ){4}[-0-9*/,A-Za-z]+)$' }],
  [/(existingSecret|existingConfigMap|tlsSecret|existingClaim)$/, nameOrEmpty],
  [/^(nameOverride|fullnameOverride)$/, serviceNameOrEmpty],
  [/^image\.pullSecrets$/, { type: 'array', items: closed({ name: { type: 'string' } }, ['name']) }],
  [/^image\.pullPolicy$/, { enum: ['Always', 'IfNotPresent', 'Never'] }],
  [/^image\.digest$/, { type: 'string', pattern: '^$|^sha256:[0-9a-f]{64}$' }],
  [/^image\.repository$/, { type: 'string', minLength: 1 }],
  [/^networkPolicy\..*[lL]abels$/, textMap],
  [/[lL]abels$/, labels],
  [/[aA]nnotations$/, textMap],
  [/\.nodeSelector$/, textMap],
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
  [/\.(dnsNames|hosts|hostnames|loadBalancerSourceRanges)$/, texts],
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
  [/\.(tolerations|extraEnv|extraVolumes|extraVolumeMounts|parentRefs)$/, kubernetesObjects],
  [/\.(clients|administrators|monitoring|alsoFrom)$/, kubernetesObjects],
  [/^networkPolicy\.egress\.\w+$/, destination],
  [/\.persistence\.size$/, quantity],
];

/** The form of a value, where its default does not tell it. */
export function formOf(path) {
  return forms.find(([pattern]) => pattern.test(path))?.[1];
}
