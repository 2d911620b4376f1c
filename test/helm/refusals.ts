/** Invalid values on top of the profile live-tls, with the expected error. */
export const refusals: readonly (readonly [string, RegExp, object])[] = [
  ['no TLS and no proxy', /no TLS and no trusted proxy/, { gateway: { tls: { existingSecret: '' } } }],
  [
    'no listener at all',
    /no TLS and no plain listener/,
    { gateway: { tls: { existingSecret: '' }, plainListener: false }, config: { trustedProxies: ['10.0.0.0/8'] } },
  ],
  [
    'everybody trusted',
    /trustedProxies has 0\.0\.0\.0\/0: any client/,
    { config: { trustedProxies: ['10.0.0.0/8', '0.0.0.0/0'] } },
  ],
  ['HTTP/2', /the gateway speaks HTTP\/1\.1 only/, { config: { listen: { https: { http2: true } } } }],
  ['everybody trusted, IPv6', /trustedProxies has ::\/0/, { config: { trustedProxies: ['::/0'] } }],
  ['production without a pepper', /production without a pepper/, { secrets: { keyPepper: { existingSecret: '' } } }],
  [
    'autoscaling of fixed replicas',
    /each would undo the other/,
    { gateway: { replicas: 3, autoscaling: { enabled: true } } },
  ],
  [
    'autoscaling upside down',
    /minReplicas is above maxReplicas/,
    { gateway: { autoscaling: { enabled: true, minReplicas: 20 } } },
  ],
  [
    'a budget of all pods',
    /wants 3 of 3 pods at all times: no node/,
    { gateway: { podDisruptionBudget: { maxUnavailable: null, minAvailable: 3 } } },
  ],
  [
    'a budget of nearly all pods',
    /wants 3 of 3 pods at all times/,
    { gateway: { podDisruptionBudget: { maxUnavailable: null, minAvailable: '80%' } } },
  ],
  ['a budget of none away', /lets no pod be away/, { gateway: { podDisruptionBudget: { maxUnavailable: 0 } } }],
  [
    'a budget of both',
    /needs one of maxUnavailable and minAvailable/,
    { gateway: { podDisruptionBudget: { minAvailable: 1 } } },
  ],
  [
    'an external policy without effect',
    /has no effect on a ClusterIP/,
    { gateway: { service: { type: 'ClusterIP', externalTrafficPolicy: 'Local' } } },
  ],
  [
    "client addresses that are nodes'",
    /allowlists and Tor exits mean nothing/,
    { gateway: { service: { externalTrafficPolicy: 'Cluster' } } },
  ],
  [
    'an address of IPv6 on which nobody listens',
    /gives callers an address of IPv6, on which nobody listens/,
    { gateway: { service: { ipFamilies: ['IPv4', 'IPv6'] } } },
  ],
  [
    'perhaps an address of IPv6 on which nobody listens',
    /gives callers an address of IPv6, on which nobody listens/,
    { gateway: { service: { ipFamilyPolicy: 'PreferDualStack' } } },
  ],
  [
    'two families as one',
    /SingleStack has one of ipFamilies, not two/,
    { gateway: { listenAddress: '::', service: { ipFamilyPolicy: 'SingleStack', ipFamilies: ['IPv6', 'IPv4'] } } },
  ],
  [
    'an Ingress that nobody trusts',
    /an Ingress or HTTPRoute terminates TLS/,
    { gateway: { ingress: { enabled: true, hosts: ['a.example'] } } },
  ],
  [
    'an Ingress without hosts',
    /gateway\.ingress needs hosts/,
    { gateway: { ingress: { enabled: true } }, config: { trustedProxies: ['10.0.0.1'] } },
  ],
  [
    'a route without hosts',
    /gateway\.route needs parentRefs/,
    { gateway: { route: { enabled: true, kind: 'TLSRoute' } } },
  ],
  [
    'TLS through to no TLS',
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
    'two certificates',
    /choose one certificate/,
    { gateway: { tls: { certManager: { enabled: true, dnsNames: ['a.example'], issuerRef: { name: 'a' } } } } },
  ],
  [
    'a certificate for no name',
    /needs issuerRef\.name/,
    { gateway: { tls: { existingSecret: '', certManager: { enabled: true } } } },
  ],
  [
    'ticket keys without TLS',
    /are of the gateway's own TLS/,
    {
      gateway: { tls: { existingSecret: '' } },
      secrets: { tlsTicketKeys: { existingSecret: 'keys' } },
      config: { trustedProxies: ['10.0.0.1'] },
    },
  ],
  ['a CronJob without URLs', /has nothing to fetch/, { torExits: { cronJob: { enabled: true } } }],
  ['no Tor exits', /no list of Tor exits/, { torExits: { existingConfigMap: '' } }],
  [
    'a store in each pod',
    /each pod would have merchants and keys of its own/,
    { config: { keyStore: { kind: 'memory' } } },
  ],
  [
    "a store of one environment's gateways",
    /live: gateway\.config\.keyStore would be the gateways' alone/,
    { environments: { live: { gateway: { config: { keyStore: { redis: { url: 'redis://other:6379' } } } } } } },
  ],
  [
    "an identity of one environment's gateways",
    /live: gateway\.config\.identity would be the gateways' alone/,
    {
      services: { enabled: true },
      environments: { live: { gateway: { config: { identity: { audience: 'other' } } } } },
    },
  ],
  [
    'routes of one environment that the services would know alone',
    /test: another environment has routes of its own/,
    {
      services: { enabled: true },
      environments: {
        live: { gateway: { config: { routes: [{ path: '/payouts', upstream: 'payouts', resource: 'payouts' }] } } },
        test: { enabled: true },
      },
    },
  ],
  [
    'a load balancer without one',
    /are of the type LoadBalancer/,
    { gateway: { service: { type: 'ClusterIP', externalTrafficPolicy: null, loadBalancerClass: 'x.example/lb' } } },
  ],
  [
    'networks of no load balancer',
    /are of the type LoadBalancer/,
    { gateway: { service: { type: 'NodePort', loadBalancerSourceRanges: ['203.0.113.0/24'] } } },
  ],
  ['one port twice', /httpsPort and httpPort are the same/, { gateway: { service: { httpPort: 443 } } }],
  [
    'services that nobody tells the keys of gateways',
    /set config\.identity\.publicKeysUrl/,
    {
      environments: { live: { enabled: false } },
      services: { enabled: true },
      secrets: { identitySigningKey: { existingSecret: 'signing' } },
    },
  ],
  ['PROXY headers of nobody', /proxyProtocol without/, { config: { proxyProtocol: true } }],
  ['two writers of SQLite', /registry\.replicas is above 1 with SQLite/, { registry: { replicas: 2 } }],
  [
    'a registry without a token',
    /secrets\.adminToken\.existingSecret/,
    { secrets: { adminToken: { existingSecret: '' } } },
  ],
  ['services that believe nobody', /signed identity alone/, { services: { enabled: true } }],
  ['a policy for every pod', /would cut off every pod/, { networkPolicy: { protectRedis: { enabled: true } } }],
  [
    'nothing at all',
    /nothing is enabled/,
    { environments: { live: { enabled: false } }, registry: { enabled: false } },
  ],
  // Values that the schema rejects.
  ['an unknown value', /servce is not allowed/, { gateway: { servce: {} } }],
  [
    'an unknown value of an environment',
    /environments\.live\.gateway: Additional property x/,
    { environments: { live: { gateway: { x: 1 } } } },
  ],
  ['a name that is none', /fullnameOverride: Does not match/, { fullnameOverride: '1-gateway' }],
  ['a name with dots', /nameOverride: Does not match/, { nameOverride: 'a.b' }],
  [
    "a label of the chart's",
    /commonLabels: .*component/,
    { commonLabels: { 'app.kubernetes.io/component': 'everything' } },
  ],
  ['a label of two words', /commonLabels\.team: Does not match/, { commonLabels: { team: 'the payments' } }],
  ['a label of 64 characters', /commonLabels\.team: Does not match/, { commonLabels: { team: 'a'.repeat(64) } }],
  [
    'a label that ends with a hyphen',
    /podLabels\.app: Does not match/,
    { networkPolicy: { protectRedis: { enabled: true, podLabels: { app: 'redis-' } } } },
  ],
  ['a node by no label', /nodeSelector\.zone: Does not match/, { gateway: { nodeSelector: { zone: 'a/b' } } }],
  ['an unknown option', /config: Additional property foo/, { config: { foo: 1 } }],
  ['an option of the chart', /config: Additional property environment/, { config: { environment: 'test' } }],
  ['a text for a number', /gateway\.replicas: Invalid type/, { gateway: { replicas: '3' } }],
  ['an unknown secret', /secrets: Additional property pepper/, { secrets: { pepper: {} } }],
  ['a schedule that is none', /cronJob\.schedule: Does not match/, { torExits: { cronJob: { schedule: 'hourly' } } }],
  ['a secret as a value', /secrets\.keyPepper: Additional property value/, { secrets: { keyPepper: { value: 'x' } } }],
  // A null removes a default before helm validates the schema.
  ['no environment', /environments: live is required/, { environments: { live: null } }],
  ['no configuration', /config is required/, { config: null }],
  ['no gateways', /gateway is required/, { gateway: null }],
  ['no configuration of the gateways', /gateway: config is required/, { gateway: { config: null } }],
  ['no group of TLS', /gateway: tls is required/, { gateway: { tls: null } }],
  ['no budget', /gateway: podDisruptionBudget is required/, { gateway: { podDisruptionBudget: null } }],
  ['no port', /gateway\.service: httpsPort is required/, { gateway: { service: { httpsPort: null } } }],
  ['no secrets', /secrets is required/, { secrets: null }],
  ['no secret', /secrets: keyPepper is required/, { secrets: { keyPepper: null } }],
  ['no key of a secret', /secrets\.keyPepper: key is required/, { secrets: { keyPepper: { key: null } } }],
  ['no image', /image is required/, { image: null }],
  ['no monitoring', /monitoring is required/, { monitoring: null }],
  ['no policies', /networkPolicy is required/, { networkPolicy: null }],
  ['no way to Redis', /networkPolicy\.egress: redis is required/, { networkPolicy: { egress: { redis: null } } }],
  ['no replicas of the registry', /registry: replicas is required/, { registry: { replicas: null } }],
  [
    'no group of TLS in an environment',
    /environments\.live\.gateway\.tls: Invalid type/,
    { environments: { live: { gateway: { tls: null } } } },
  ],
  // Access logs.
  [
    'an access log that goes with the pod',
    /accessLog\.destination is var\/access\.log, which goes with the pod/,
    { config: { accessLog: { destination: 'var/access.log' } } },
  ],
  [
    'an access log in a place that nobody mounts',
    /\/logs-of-nobody\/\$\{HOSTNAME\}\.log, which goes with the pod/,
    {
      config: { accessLog: { destination: '/logs-of-nobody/${HOSTNAME}.log' } },
      gateway: {
        extraVolumes: [{ name: 'logs', persistentVolumeClaim: { claimName: 'logs' } }],
        extraVolumeMounts: [{ name: 'logs', mountPath: '/logs' }],
      },
    },
  ],
  [
    'an access log on a volume of the pod',
    /which goes with the pod/,
    {
      config: { accessLog: { destination: '/logs/${HOSTNAME}.log' } },
      gateway: {
        extraVolumes: [{ name: 'logs', emptyDir: {} }],
        extraVolumeMounts: [{ name: 'logs', mountPath: '/logs' }],
      },
    },
  ],
  [
    'checkpoints that go with the pod',
    /accessLog\.checkpoints\.file is \/var\/lib\/checkpoints\.jsonl, which goes with the pod/,
    { config: { accessLog: { checkpoints: { file: '/var/lib/checkpoints.jsonl' } } } },
  ],
  [
    'a key that signs checkpoints which nobody keeps',
    /secrets\.instanceKey signs checkpoints that are kept nowhere/,
    { secrets: { instanceKey: { create: true } } },
  ],
  [
    'one access log for all pods',
    /is one file for all pods/,
    {
      config: { accessLog: { destination: '/logs/$${HOSTNAME}.log' } },
      gateway: {
        extraVolumes: [{ name: 'logs', persistentVolumeClaim: { claimName: 'logs' } }],
        extraVolumeMounts: [{ name: 'logs', mountPath: '/logs/' }],
      },
    },
  ],
  // Budgets, autoscaling and resources.
  [
    'a budget that lets all pods be away',
    /lets 3 of 3 pods be away at once: it protects nothing/,
    { gateway: { podDisruptionBudget: { maxUnavailable: '100%' } } },
  ],
  [
    'a budget that lets more than all be away',
    /lets 10 of 3 pods be away at once/,
    { gateway: { podDisruptionBudget: { maxUnavailable: 10 } } },
  ],
  [
    'a budget that wants none there',
    /gateway\.podDisruptionBudget lets 3 of 3 pods be away/,
    { gateway: { podDisruptionBudget: { maxUnavailable: null, minAvailable: '0%' } } },
  ],
  [
    'autoscaling without a measure',
    /gateway\.autoscaling measures the share of the requested CPU/,
    { gateway: { autoscaling: { enabled: true }, resources: { requests: { cpu: null } } } },
  ],
  [
    'memory in thousandths of a byte',
    /memory: Does not match/,
    { gateway: { resources: { limits: { memory: '512m' } } } },
  ],
  ['memory of some bytes', /memory: Does not match/, { registry: { resources: { limits: { memory: '512' } } } }],
  ['a CPU in bytes', /cpu: Does not match/, { registry: { resources: { requests: { cpu: '1Gi' } } } }],
  [
    'more memory asked for than allowed',
    /live: gateway\.resources asks for 2Gi of memory, above the limit of 1536Mi/,
    { gateway: { resources: { requests: { memory: '2Gi' } } } },
  ],
  [
    'more CPU asked for than allowed',
    /registry\.resources asks for 1\.5 of cpu, above the limit of 1200m/,
    { registry: { resources: { requests: { cpu: '1.5' }, limits: { cpu: '1200m' } } } },
  ],
  [
    'more memory asked for than allowed, by the CronJob',
    /torExits\.cronJob\.resources asks for 300M of memory/,
    {
      config: { torExits: { sources: ['https://exits.example/list'] } },
      torExits: { cronJob: { enabled: true, resources: { requests: { memory: '300M' } } } },
    },
  ],
  // Networks, names and durations.
  [
    'a network that is none',
    /loadBalancerSourceRanges\.0: Does not match/,
    { gateway: { service: { loadBalancerSourceRanges: ['203.0.113.0'] } } },
  ],
  [
    'a network that is too large',
    /loadBalancerSourceRanges\.1: Does not match/,
    { gateway: { service: { loadBalancerSourceRanges: ['2001:db8::/32', '203.0.113.0/33'] } } },
  ],
  ['a name with a scheme', /dnsNames\.0: Does not match/, certificate({ dnsNames: ['https://api.example.com'] })],
  [
    'a name twice',
    /dnsNames: array items\[0,1\] must be unique/,
    certificate({ dnsNames: ['a.example', 'a.example'] }),
  ],
  ['an address for a host', /hosts\.0: Does not match/, { gateway: { ingress: { hosts: ['203.0.113.9'] } } }],
  [
    'a host with a port',
    /hostnames\.0: Does not match/,
    { gateway: { route: { hostnames: ['api.example.com:443'] } } },
  ],
  [
    'one host for both environments',
    /live and test have the same Ingress host, api\.example\.com/,
    {
      config: { trustedProxies: ['10.0.0.1'] },
      gateway: { ingress: { enabled: true, hosts: ['api.example.com'] } },
      environments: { test: { enabled: true } },
    },
  ],
  [
    'one route for both environments',
    /live and test have the same route's hostname, api\.example\.com/,
    {
      gateway: {
        route: { enabled: true, kind: 'TLSRoute', parentRefs: [{ name: 'edge' }], hostnames: ['api.example.com'] },
      },
      environments: { test: { enabled: true } },
    },
  ],
  [
    'a renewal before there is a certificate',
    /renewed 720h before its end, and valid for 24h30m/,
    certificate({ duration: '24h30m' }),
  ],
  [
    'a renewal that cert-manager refuses',
    /renewed 299s before its end/,
    certificate({ duration: '24h', renewBefore: '299s' }),
  ],
  // The image.
  ['a tag that is none', /image\.tag: Does not match/, { image: { tag: 'a b' } }],
  ['a repository with a tag', /image\.repository: Does not match/, { image: { repository: 'repo:1.2' } }],
  ['a repository with a digest', /image\.repository: Does not match/, { image: { repository: 'repo@sha256:12' } }],
  [
    'a repository in capitals',
    /image\.repository: Does not match/,
    { image: { repository: 'registry.example/Gateway' } },
  ],
  // Additions to the pods.
  ['a variable without a name', /extraEnv\.0: name is required/, { gateway: { extraEnv: [{ value: 'a' }] } }],
  [
    'a variable that is a number',
    /extraEnv\.0\.value: Invalid type/,
    { registry: { extraEnv: [{ name: 'A', value: 1 }] } },
  ],
  [
    'a variable with two values',
    /extraEnv\.0: Must have at most 2 properties/,
    { gateway: { extraEnv: [{ name: 'A', value: 'a', valueFrom: {} }] } },
  ],
  [
    "a variable of the chart's",
    /live: gateway\.extraEnv has NODE_ENV, which the chart or Kubernetes sets/,
    { gateway: { extraEnv: [{ name: 'NODE_ENV', value: 'test' }] } },
  ],
  [
    'a variable twice',
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
    "a volume of the chart's",
    /live: gateway\.extraVolumes has tls, a name that the chart uses/,
    { gateway: { extraVolumes: [{ name: 'tls', emptyDir: {} }] } },
  ],
  [
    'a volume without a name',
    /registry\.extraVolumes\.0: name is required/,
    { registry: { extraVolumes: [{ emptyDir: {} }] } },
  ],
  [
    'a volume twice',
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
    'a mount of nothing',
    /gateway\.extraVolumeMounts mounts geo, which is not in gateway\.extraVolumes/,
    { gateway: { extraVolumeMounts: [{ name: 'geo', mountPath: '/geo' }] } },
  ],
  ...['/etc/merchant-gateway', '/etc/merchant-gateway/config/', '/etc', '/', '/tmp', '/app/dist'].map(
    (mountPath) =>
      [
        `a mount at ${mountPath}`,
        /gateway\.extraVolumeMounts has \/\S*, which would hide what is the chart's or the image's own/,
        { gateway: { extraVolumes: [{ name: 'a', emptyDir: {} }], extraVolumeMounts: [{ name: 'a', mountPath }] } },
      ] as const,
  ),
  [
    'a mount at no path',
    /registry\.extraVolumeMounts has geo, which is no absolute path/,
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
    'an access log of each pod, on a volume that stays',
    {
      config: { accessLog: { destination: '/var/log/gateway/${HOSTNAME}.log' } },
      gateway: {
        extraVolumes: [{ name: 'logs', persistentVolumeClaim: { claimName: 'logs' } }],
        extraVolumeMounts: [{ name: 'logs', mountPath: '/var/log/gateway/' }],
      },
    },
  ],
  ['a label that says nothing', { commonLabels: { team: '', 'example.com/tier': 'Gold_1.a' } }],
  ['one family', { gateway: { service: { ipFamilyPolicy: 'SingleStack', ipFamilies: ['IPv4'] } } }],
  ['the other one', { gateway: { listenAddress: '::', service: { ipFamilies: ['IPv6'] } } }],
  ['a budget of one pod, which may be away', { gateway: { replicas: 1 } }],
  ['a budget of some of them', { gateway: { podDisruptionBudget: { maxUnavailable: '66%' } } }],
  [
    'autoscaling by a limit, which is the request where there is none',
    {
      gateway: { autoscaling: { enabled: true }, resources: { requests: { cpu: null }, limits: { cpu: '1' } } },
    },
  ],
  [
    'a request that is its limit, in other units',
    { gateway: { resources: { requests: { memory: '0.5Gi', cpu: '1000m' }, limits: { memory: '512Mi', cpu: '1' } } } },
  ],
  [
    'networks of both families',
    { gateway: { service: { loadBalancerSourceRanges: ['10.0.0.0/8', '2001:db8::/32'] } } },
  ],
  ['a name with a wildcard', certificate({ dnsNames: ['*.api.example.com', 'gateway'], renewBefore: '2159h59m59s' })],
  [
    'one host of two Ingress classes',
    {
      config: { trustedProxies: ['10.0.0.1'] },
      gateway: { ingress: { enabled: true, hosts: ['api.example.com'] } },
      environments: { test: { enabled: true, gateway: { ingress: { className: 'inside' } } } },
    },
  ],
  [
    'a registry with a port',
    { image: { repository: 'registry.example:5000/payments/merchant__gateway', tag: 'v1.2_3' } },
  ],
  [
    'a volume below a place that is written',
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
