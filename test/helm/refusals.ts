/** Invalid values on top of the profile live-tls, with the expected error. */
export const refusals: readonly (readonly [string, RegExp, object])[] = [
  ['no TLS and no trusted proxy', /no TLS and no trusted proxy/, { gateway: { tls: { existingSecret: '' } } }],
  [
    'no listener',
    /no TLS and no plain listener/,
    { gateway: { tls: { existingSecret: '' }, plainListener: false }, config: { trustedProxies: ['10.0.0.0/8'] } },
  ],
  [
    'trustedProxies with every IPv4 address',
    /trustedProxies has 0\.0\.0\.0\/0: any client/,
    { config: { trustedProxies: ['10.0.0.0/8', '0.0.0.0/0'] } },
  ],
  ['HTTP/2 enabled', /the gateway speaks HTTP\/1\.1 only/, { config: { listen: { https: { http2: true } } } }],
  ['trustedProxies with every IPv6 address', /trustedProxies has ::\/0/, { config: { trustedProxies: ['::/0'] } }],
  ['production without a pepper', /production without a pepper/, { secrets: { keyPepper: { existingSecret: '' } } }],
  [
    'a console without an origin',
    /set config\.registry\.console\.origin/,
    { config: { registry: { console: { listen: { port: 7443 } } } } },
  ],
  [
    'wallets in the console without the key of services tokens',
    /set secrets\.servicesTokenKey\.existingSecret/,
    {
      config: {
        registry: { console: { origin: 'https://console.example.com', services: { url: 'https://services:7081' } } },
      },
    },
  ],
  [
    'an owner of the tables without the user of the registry',
    /registryOwner and migrations\.registryUser must be set together/,
    {
      secrets: { registryDatabase: { existingSecret: 'database' } },
      migrations: { registryOwner: { existingSecret: 'owner' } },
    },
  ],
  [
    'an owner of the tables on SQLite',
    /registryOwner has no effect without secrets\.registryDatabase/,
    { migrations: { registryOwner: { existingSecret: 'owner' }, registryUser: 'registry' } },
  ],
  [
    'autoscaling with fixed replicas',
    /contradict each other/,
    { gateway: { replicas: 3, autoscaling: { enabled: true } } },
  ],
  [
    'autoscaling with minReplicas above maxReplicas',
    /minReplicas is above maxReplicas/,
    { gateway: { autoscaling: { enabled: true, minReplicas: 20 } } },
  ],
  [
    'a disruption budget with minAvailable of all pods',
    /requires 3 of 3 pods at all times, so no node/,
    { gateway: { podDisruptionBudget: { maxUnavailable: null, minAvailable: 3 } } },
  ],
  [
    'a disruption budget with minAvailable that rounds up to all pods',
    /requires 3 of 3 pods at all times/,
    { gateway: { podDisruptionBudget: { maxUnavailable: null, minAvailable: '80%' } } },
  ],
  [
    'a disruption budget with maxUnavailable 0',
    /allows no unavailable pod/,
    { gateway: { podDisruptionBudget: { maxUnavailable: 0 } } },
  ],
  [
    'a disruption budget with maxUnavailable and minAvailable',
    /needs exactly one of maxUnavailable and minAvailable/,
    { gateway: { podDisruptionBudget: { minAvailable: 1 } } },
  ],
  [
    'externalTrafficPolicy on a ClusterIP',
    /has no effect on a ClusterIP/,
    { gateway: { service: { type: 'ClusterIP', externalTrafficPolicy: 'Local' } } },
  ],
  [
    'externalTrafficPolicy Cluster, which hides client addresses',
    /allowlists and the Tor check would not work/,
    { gateway: { service: { externalTrafficPolicy: 'Cluster' } } },
  ],
  [
    'a dual-stack Service without an IPv6 listener',
    /has an IPv6 address, but the gateway listens only on IPv4/,
    { gateway: { service: { ipFamilies: ['IPv4', 'IPv6'] } } },
  ],
  [
    'a PreferDualStack Service without an IPv6 listener',
    /has an IPv6 address, but the gateway listens only on IPv4/,
    { gateway: { service: { ipFamilyPolicy: 'PreferDualStack' } } },
  ],
  [
    'SingleStack with two IP families',
    /SingleStack allows only one of ipFamilies/,
    { gateway: { listenAddress: '::', service: { ipFamilyPolicy: 'SingleStack', ipFamilies: ['IPv6', 'IPv4'] } } },
  ],
  [
    'an Ingress without trustedProxies',
    /an Ingress or HTTPRoute terminates TLS/,
    { gateway: { ingress: { enabled: true, hosts: ['a.example'] } } },
  ],
  [
    'an Ingress without hosts',
    /gateway\.ingress needs hosts/,
    { gateway: { ingress: { enabled: true } }, config: { trustedProxies: ['10.0.0.1'] } },
  ],
  [
    'a route without parentRefs',
    /gateway\.route needs parentRefs/,
    { gateway: { route: { enabled: true, kind: 'TLSRoute' } } },
  ],
  [
    'TLS passthrough to a gateway without TLS',
    /passes TLS through: set gateway\.tls/,
    {
      gateway: {
        tls: { existingSecret: '' },
        route: { enabled: true, kind: 'TLSRoute', parentRefs: [{ name: 'a' }], hostnames: ['a.example'] },
      },
      config: { trustedProxies: ['10.0.0.1'] },
    },
  ],
  [
    'a certificate from a Secret and from cert-manager',
    /choose one certificate/,
    { gateway: { tls: { certManager: { enabled: true, dnsNames: ['a.example'], issuerRef: { name: 'a' } } } } },
  ],
  [
    'a certificate without an issuer and DNS names',
    /needs issuerRef\.name/,
    { gateway: { tls: { existingSecret: '', certManager: { enabled: true } } } },
  ],
  [
    'ticket keys without TLS at the gateway',
    /have no effect without TLS in the gateway/,
    {
      gateway: { tls: { existingSecret: '' } },
      secrets: { tlsTicketKeys: { existingSecret: 'keys' } },
      config: { trustedProxies: ['10.0.0.1'] },
    },
  ],
  ['a Tor exit CronJob without URLs', /has nothing to fetch/, { torExits: { cronJob: { enabled: true } } }],
  ['no source of Tor exits', /no list of Tor exits/, { torExits: { existingConfigMap: '' } }],
  [
    'a separate in-memory store in each pod',
    /each pod would have separate merchants and keys/,
    { config: { keyStore: { kind: 'memory' } } },
  ],
  [
    "a key store for one environment's gateways only",
    /live: gateway\.config\.keyStore applies only to the gateways/,
    { environments: { live: { gateway: { config: { keyStore: { redis: { url: 'redis://other:6379' } } } } } } },
  ],
  [
    "an identity for one environment's gateways only",
    /live: gateway\.config\.identity applies only to the gateways/,
    {
      services: { enabled: true },
      environments: { live: { gateway: { config: { identity: { audience: 'other' } } } } },
    },
  ],
  [
    'routes set for one of two environments with services',
    /test: another environment overrides routes/,
    {
      services: { enabled: true },
      environments: {
        live: { gateway: { config: { routes: [{ path: '/payouts', upstream: 'payouts', resource: 'payouts' }] } } },
        test: { enabled: true },
      },
    },
  ],
  [
    'loadBalancerClass on a ClusterIP',
    /need the type LoadBalancer/,
    { gateway: { service: { type: 'ClusterIP', externalTrafficPolicy: null, loadBalancerClass: 'x.example/lb' } } },
  ],
  [
    'loadBalancerSourceRanges on a NodePort',
    /need the type LoadBalancer/,
    { gateway: { service: { type: 'NodePort', loadBalancerSourceRanges: ['203.0.113.0/24'] } } },
  ],
  [
    'the same port for HTTPS and HTTP',
    /httpsPort and httpPort are the same/,
    { gateway: { service: { httpPort: 443 } } },
  ],
  [
    'a token for events of the services without a key for services tokens',
    /set secrets\.servicesTokenKey\.existingSecret, or create: true/,
    {
      services: { enabled: true },
      secrets: { identitySigningKey: { existingSecret: 'signing' }, servicesTrailToken: { existingSecret: 'trail' } },
    },
  ],
  [
    'events of the services without the address of the registry',
    /set config\.services\.operators\.trail\.url/,
    {
      services: { enabled: true },
      registry: { enabled: false },
      secrets: {
        identitySigningKey: { existingSecret: 'signing' },
        servicesTrailToken: { existingSecret: 'trail' },
        servicesTokenKey: { existingSecret: 'pair' },
      },
    },
  ],
  [
    "services without a source of the gateways' public keys",
    /set config\.identity\.publicKeysUrl/,
    {
      environments: { live: { enabled: false } },
      services: { enabled: true },
      secrets: { identitySigningKey: { existingSecret: 'signing' } },
    },
  ],
  ['PROXY protocol without trustedProxies', /proxyProtocol without/, { config: { proxyProtocol: true } }],
  ['two registry replicas with SQLite', /registry\.replicas is above 1 with SQLite/, { registry: { replicas: 2 } }],
  [
    'a registry without an admin token',
    /secrets\.adminToken\.existingSecret/,
    { secrets: { adminToken: { existingSecret: '' } } },
  ],
  ['services without a signing key for the identity', /only the signed identity/, { services: { enabled: true } }],
  [
    'a Redis policy that selects every pod',
    /would isolate every pod/,
    { networkPolicy: { protectRedis: { enabled: true } } },
  ],
  [
    'every part disabled',
    /nothing is enabled/,
    { environments: { live: { enabled: false } }, registry: { enabled: false } },
  ],
  // Values that the schema rejects.
  ['an unknown value', /servce is not allowed/, { gateway: { servce: {} } }],
  [
    'an unknown value in an environment',
    /environments\.live\.gateway: Additional property x/,
    { environments: { live: { gateway: { x: 1 } } } },
  ],
  ['an invalid name', /fullnameOverride: Does not match/, { fullnameOverride: '1-gateway' }],
  ['a name with dots', /nameOverride: Does not match/, { nameOverride: 'a.b' }],
  [
    'a label that the chart sets',
    /commonLabels: .*component/,
    { commonLabels: { 'app.kubernetes.io/component': 'everything' } },
  ],
  ['a label value with a space', /commonLabels\.team: Does not match/, { commonLabels: { team: 'the payments' } }],
  ['a label value of 64 characters', /commonLabels\.team: Does not match/, { commonLabels: { team: 'a'.repeat(64) } }],
  [
    'a label value that ends with a hyphen',
    /podLabels\.app: Does not match/,
    { networkPolicy: { protectRedis: { enabled: true, podLabels: { app: 'redis-' } } } },
  ],
  [
    'a node selector with an invalid label value',
    /nodeSelector\.zone: Does not match/,
    { gateway: { nodeSelector: { zone: 'a/b' } } },
  ],
  ['an unknown option in config', /config: Additional property foo/, { config: { foo: 1 } }],
  [
    'an option in config that the chart sets',
    /config: Additional property environment/,
    { config: { environment: 'test' } },
  ],
  ['a string instead of a number', /gateway\.replicas: Invalid type/, { gateway: { replicas: '3' } }],
  ['an unknown secret', /secrets: Additional property pepper/, { secrets: { pepper: {} } }],
  ['an invalid schedule', /cronJob\.schedule: Does not match/, { torExits: { cronJob: { schedule: 'hourly' } } }],
  [
    'a secret written into the values',
    /secrets\.keyPepper: Additional property value/,
    { secrets: { keyPepper: { value: 'x' } } },
  ],
  // A null removes a default before helm validates the schema.
  ['environments.live removed', /environments: live is required/, { environments: { live: null } }],
  ['config removed', /config is required/, { config: null }],
  ['gateway removed', /gateway is required/, { gateway: null }],
  ['gateway.config removed', /gateway: config is required/, { gateway: { config: null } }],
  ['gateway.tls removed', /gateway: tls is required/, { gateway: { tls: null } }],
  [
    'gateway.podDisruptionBudget removed',
    /gateway: podDisruptionBudget is required/,
    { gateway: { podDisruptionBudget: null } },
  ],
  [
    'gateway.service.httpsPort removed',
    /gateway\.service: httpsPort is required/,
    { gateway: { service: { httpsPort: null } } },
  ],
  ['secrets removed', /secrets is required/, { secrets: null }],
  ['secrets.keyPepper removed', /secrets: keyPepper is required/, { secrets: { keyPepper: null } }],
  ['secrets.keyPepper.key removed', /secrets\.keyPepper: key is required/, { secrets: { keyPepper: { key: null } } }],
  ['image removed', /image is required/, { image: null }],
  ['monitoring removed', /monitoring is required/, { monitoring: null }],
  ['networkPolicy removed', /networkPolicy is required/, { networkPolicy: null }],
  [
    'networkPolicy.egress.redis removed',
    /networkPolicy\.egress: redis is required/,
    { networkPolicy: { egress: { redis: null } } },
  ],
  ['registry.replicas removed', /registry: replicas is required/, { registry: { replicas: null } }],
  [
    'gateway.tls removed in an environment',
    /environments\.live\.gateway\.tls: Invalid type/,
    { environments: { live: { gateway: { tls: null } } } },
  ],
  // Access logs and checkpoints.
  [
    'an access log that is lost with the pod',
    /accessLog\.destination is var\/access\.log, which is lost with the pod/,
    { config: { accessLog: { destination: 'var/access.log' } } },
  ],
  [
    'an access log at a path without a mounted volume',
    /\/logs-of-nobody\/\$\{HOSTNAME\}\.log, which is lost with the pod/,
    {
      config: { accessLog: { destination: '/logs-of-nobody/${HOSTNAME}.log' } },
      gateway: {
        extraVolumes: [{ name: 'logs', persistentVolumeClaim: { claimName: 'logs' } }],
        extraVolumeMounts: [{ name: 'logs', mountPath: '/logs' }],
      },
    },
  ],
  [
    'an access log on an emptyDir volume',
    /which is lost with the pod/,
    {
      config: { accessLog: { destination: '/logs/${HOSTNAME}.log' } },
      gateway: {
        extraVolumes: [{ name: 'logs', emptyDir: {} }],
        extraVolumeMounts: [{ name: 'logs', mountPath: '/logs' }],
      },
    },
  ],
  [
    'checkpoints that are lost with the pod',
    /accessLog\.checkpoints\.file is \/var\/lib\/checkpoints\.jsonl, which is lost with the pod/,
    { config: { accessLog: { checkpoints: { file: '/var/lib/checkpoints.jsonl' } } } },
  ],
  [
    'a key for checkpoints without a destination',
    /secrets\.instanceKey signs checkpoints, but nothing stores them/,
    { secrets: { instanceKey: { create: true } } },
  ],
  [
    'one access log file for all pods',
    /is one file for all pods/,
    {
      config: { accessLog: { destination: '/logs/$${HOSTNAME}.log' } },
      gateway: {
        extraVolumes: [{ name: 'logs', persistentVolumeClaim: { claimName: 'logs' } }],
        extraVolumeMounts: [{ name: 'logs', mountPath: '/logs/' }],
      },
    },
  ],
  // Disruption budgets, autoscaling and resources.
  [
    'a disruption budget with maxUnavailable of 100%',
    /allows 3 of 3 pods to be unavailable at once, so it protects nothing/,
    { gateway: { podDisruptionBudget: { maxUnavailable: '100%' } } },
  ],
  [
    'a disruption budget with maxUnavailable above the number of pods',
    /allows 10 of 3 pods to be unavailable at once/,
    { gateway: { podDisruptionBudget: { maxUnavailable: 10 } } },
  ],
  [
    'a disruption budget with minAvailable of 0%',
    /gateway\.podDisruptionBudget allows 3 of 3 pods to be unavailable/,
    { gateway: { podDisruptionBudget: { maxUnavailable: null, minAvailable: '0%' } } },
  ],
  [
    'autoscaling by CPU without a CPU request',
    /gateway\.autoscaling needs a CPU request/,
    { gateway: { autoscaling: { enabled: true }, resources: { requests: { cpu: null } } } },
  ],
  [
    'a memory limit in milli-bytes (m)',
    /memory: Does not match/,
    { gateway: { resources: { limits: { memory: '512m' } } } },
  ],
  [
    'a memory limit without a unit',
    /memory: Does not match/,
    { registry: { resources: { limits: { memory: '512' } } } },
  ],
  ['a CPU request in bytes', /cpu: Does not match/, { registry: { resources: { requests: { cpu: '1Gi' } } } }],
  [
    'a memory request above the limit',
    /live: gateway\.resources asks for 2Gi of memory, above the limit of 1536Mi/,
    { gateway: { resources: { requests: { memory: '2Gi' } } } },
  ],
  [
    'a CPU request above the limit',
    /registry\.resources asks for 1\.5 of cpu, above the limit of 1200m/,
    { registry: { resources: { requests: { cpu: '1.5' }, limits: { cpu: '1200m' } } } },
  ],
  [
    'a memory request of the CronJob above the limit',
    /torExits\.cronJob\.resources asks for 300M of memory/,
    {
      config: { torExits: { sources: ['https://exits.example/list'] } },
      torExits: { cronJob: { enabled: true, resources: { requests: { memory: '300M' } } } },
    },
  ],
  // Networks, names and durations.
  [
    'an address instead of a network',
    /loadBalancerSourceRanges\.0: Does not match/,
    { gateway: { service: { loadBalancerSourceRanges: ['203.0.113.0'] } } },
  ],
  [
    'a network prefix longer than 32 bits',
    /loadBalancerSourceRanges\.1: Does not match/,
    { gateway: { service: { loadBalancerSourceRanges: ['2001:db8::/32', '203.0.113.0/33'] } } },
  ],
  ['a DNS name with a scheme', /dnsNames\.0: Does not match/, certificate({ dnsNames: ['https://api.example.com'] })],
  [
    'a duplicate DNS name',
    /dnsNames: array items\[0,1\] must be unique/,
    certificate({ dnsNames: ['a.example', 'a.example'] }),
  ],
  ['an IP address instead of a host', /hosts\.0: Does not match/, { gateway: { ingress: { hosts: ['203.0.113.9'] } } }],
  [
    'a host with a port',
    /hostnames\.0: Does not match/,
    { gateway: { route: { hostnames: ['api.example.com:443'] } } },
  ],
  [
    'the same Ingress host for both environments',
    /live and test have the same Ingress host, api\.example\.com/,
    {
      config: { trustedProxies: ['10.0.0.1'] },
      gateway: { ingress: { enabled: true, hosts: ['api.example.com'] } },
      environments: { test: { enabled: true } },
    },
  ],
  [
    'the same route hostname for both environments',
    /live and test have the same route's hostname, api\.example\.com/,
    {
      gateway: {
        route: { enabled: true, kind: 'TLSRoute', parentRefs: [{ name: 'edge' }], hostnames: ['api.example.com'] },
      },
      environments: { test: { enabled: true } },
    },
  ],
  [
    'renewBefore longer than the duration of the certificate',
    /renewBefore is 720h and duration 24h30m/,
    certificate({ duration: '24h30m' }),
  ],
  [
    'renewBefore below the minimum of cert-manager',
    /renewBefore is 299s/,
    certificate({ duration: '24h', renewBefore: '299s' }),
  ],
  // The image.
  ['an invalid image tag', /image\.tag: Does not match/, { image: { tag: 'a b' } }],
  ['an image repository with a tag', /image\.repository: Does not match/, { image: { repository: 'repo:1.2' } }],
  [
    'an image repository with a digest',
    /image\.repository: Does not match/,
    { image: { repository: 'repo@sha256:12' } },
  ],
  [
    'an image repository with upper-case letters',
    /image\.repository: Does not match/,
    { image: { repository: 'registry.example/Gateway' } },
  ],
  // Additional variables, volumes and mounts.
  [
    'an environment variable without a name',
    /extraEnv\.0: name is required/,
    { gateway: { extraEnv: [{ value: 'a' }] } },
  ],
  [
    'an environment variable with a number as its value',
    /extraEnv\.0\.value: Invalid type/,
    { registry: { extraEnv: [{ name: 'A', value: 1 }] } },
  ],
  [
    'an environment variable with value and valueFrom',
    /extraEnv\.0: Must have at most 2 properties/,
    { gateway: { extraEnv: [{ name: 'A', value: 'a', valueFrom: {} }] } },
  ],
  [
    'an environment variable that the chart sets',
    /live: gateway\.extraEnv has NODE_ENV, which the chart or Kubernetes sets/,
    { gateway: { extraEnv: [{ name: 'NODE_ENV', value: 'test' }] } },
  ],
  [
    'a duplicate environment variable',
    /registry\.extraEnv has A twice/,
    {
      registry: {
        extraEnv: [
          { name: 'A', value: '1' },
          { name: 'A', value: '2' },
        ],
      },
    },
  ],
  [
    'a volume name that the chart uses',
    /live: gateway\.extraVolumes has tls, a name that the chart uses/,
    { gateway: { extraVolumes: [{ name: 'tls', emptyDir: {} }] } },
  ],
  [
    'a volume without a name',
    /registry\.extraVolumes\.0: name is required/,
    { registry: { extraVolumes: [{ emptyDir: {} }] } },
  ],
  [
    'a duplicate volume',
    /registry\.extraVolumes has a twice/,
    {
      registry: {
        extraVolumes: [
          { name: 'a', emptyDir: {} },
          { name: 'a', emptyDir: {} },
        ],
      },
    },
  ],
  [
    'a mount without its volume',
    /gateway\.extraVolumeMounts mounts geo, which is not in gateway\.extraVolumes/,
    { gateway: { extraVolumeMounts: [{ name: 'geo', mountPath: '/geo' }] } },
  ],
  ...['/etc/merchant-gateway', '/etc/merchant-gateway/config/', '/etc', '/', '/tmp', '/app/dist'].map(
    (mountPath) =>
      [
        `a mount at ${mountPath}`,
        /gateway\.extraVolumeMounts has \/\S*, which would hide files of the chart or the image/,
        { gateway: { extraVolumes: [{ name: 'a', emptyDir: {} }], extraVolumeMounts: [{ name: 'a', mountPath }] } },
      ] as const,
  ),
  [
    'a mount at a relative path',
    /registry\.extraVolumeMounts has geo, which is not an absolute path/,
    {
      registry: {
        extraVolumes: [{ name: 'a', emptyDir: {} }],
        extraVolumeMounts: [{ name: 'a', mountPath: 'geo' }],
      },
    },
  ],
  [
    'two mounts at one path',
    /registry\.extraVolumeMounts has \/geo twice/,
    {
      registry: {
        extraVolumes: [{ name: 'a', emptyDir: {} }],
        extraVolumeMounts: [
          { name: 'a', mountPath: '/geo' },
          { name: 'a', mountPath: '/geo/' },
        ],
      },
    },
  ],
  ...['30-10 * * * *', '0 0-5,22-6/2 * * *', '0 0 * * FRI-MON', '0 0 * dec-jan *', '09-08 * * * *'].map(
    (schedule) =>
      [
        `the schedule ${schedule}`,
        /cronJob\.schedule has the range (30-10|22-6|FRI-MON|dec-jan|09-08), which ends before it begins/,
        {
          config: { torExits: { sources: ['https://exits.example/list'] } },
          torExits: { cronJob: { enabled: true, schedule } },
        },
      ] as const,
  ),
  ...['99 99 * * *', '@foo', '*/0 * * * *', '0 0 * * 8', '0 0 0 * *'].map(
    (schedule) =>
      [
        `the schedule ${schedule}`,
        /cronJob\.schedule: Does not match/,
        { torExits: { cronJob: { schedule } } },
      ] as const,
  ),
];

/** Values for a certificate from cert-manager instead of the profile's Secret. */
function certificate(settings: object): object {
  const certManager = { enabled: true, issuerRef: { name: 'a' }, dnsNames: ['a.example'], ...settings };
  return { gateway: { tls: { existingSecret: '', certManager } } };
}

/** Valid values on top of the profile live-tls, close to invalid ones. */
export const acceptances: readonly (readonly [string, object])[] = [
  [
    'an access log per pod on a persistent volume',
    {
      config: { accessLog: { destination: '/var/log/gateway/${HOSTNAME}.log' } },
      gateway: {
        extraVolumes: [{ name: 'logs', persistentVolumeClaim: { claimName: 'logs' } }],
        extraVolumeMounts: [{ name: 'logs', mountPath: '/var/log/gateway/' }],
      },
    },
  ],
  ['an empty label value', { commonLabels: { team: '', 'example.com/tier': 'Gold_1.a' } }],
  ['SingleStack with IPv4', { gateway: { service: { ipFamilyPolicy: 'SingleStack', ipFamilies: ['IPv4'] } } }],
  ['IPv6 only, with an IPv6 listener', { gateway: { listenAddress: '::', service: { ipFamilies: ['IPv6'] } } }],
  ['a disruption budget for one pod', { gateway: { replicas: 1 } }],
  ['a disruption budget with maxUnavailable of 66%', { gateway: { podDisruptionBudget: { maxUnavailable: '66%' } } }],
  [
    'autoscaling with a CPU limit, which is the default of the request',
    {
      gateway: { autoscaling: { enabled: true }, resources: { requests: { cpu: null }, limits: { cpu: '1' } } },
    },
  ],
  [
    'requests equal to the limits, in other units',
    { gateway: { resources: { requests: { memory: '0.5Gi', cpu: '1000m' }, limits: { memory: '512Mi', cpu: '1' } } } },
  ],
  ['IPv4 and IPv6 networks', { gateway: { service: { loadBalancerSourceRanges: ['10.0.0.0/8', '2001:db8::/32'] } } }],
  ['a wildcard DNS name', certificate({ dnsNames: ['*.api.example.com', 'gateway'], renewBefore: '2159h59m59s' })],
  [
    'the same host in two Ingress classes',
    {
      config: { trustedProxies: ['10.0.0.1'] },
      gateway: { ingress: { enabled: true, hosts: ['api.example.com'] } },
      environments: { test: { enabled: true, gateway: { ingress: { className: 'inside' } } } },
    },
  ],
  [
    'an image registry with a port',
    { image: { repository: 'registry.example:5000/payments/merchant__gateway', tag: 'v1.2_3' } },
  ],
  [
    'a volume below a writable directory',
    {
      gateway: {
        extraVolumes: [{ name: 'geo', configMap: { name: 'geo' } }],
        extraVolumeMounts: [{ name: 'geo', mountPath: '/var/lib/merchant-gateway/var/geo', readOnly: true }],
      },
    },
  ],
  ...['@hourly', '5,35 0-6 1-15/2 jan,DEC MON-FRI', '08-09 5-5 * jan-DEC sun-SAT'].map(
    (schedule) =>
      [
        `the schedule ${schedule}`,
        {
          config: { torExits: { sources: ['https://exits.example/list'] } },
          torExits: { cronJob: { enabled: true, schedule } },
        },
      ] as const,
  ),
];
