import type { Acceptances, Refusals } from './verdicts.js';

/** Invalid values on top of the profile live-tls, with the expected error. */
export const refusals: Refusals = [
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
  // Disruption budgets and autoscaling.
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
  // Hosts and durations.
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
  // Schedules.
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
];

/** Values for a certificate from cert-manager instead of the profile's Secret. */
function certificate(settings: object): object {
  const certManager = { enabled: true, issuerRef: { name: 'a' }, dnsNames: ['a.example'], ...settings };
  return { gateway: { tls: { existingSecret: '', certManager } } };
}

/** Valid values on top of the profile live-tls, close to invalid ones. */
export const acceptances: Acceptances = [
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
