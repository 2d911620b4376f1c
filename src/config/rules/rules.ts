import { foldSegment } from '../../policy/route-paths.js';
import type { Rule, RuleProblem } from '../config-error.js';
import { accessLogRules } from './access-log-rules.js';
import { oidcRules } from './oidc-rules.js';
import { operatorsRules } from './operators-rules.js';
import { proxyProblems } from './proxy-rules.js';
import { redisRules } from './redis-rules.js';
import { registryRules } from './registry-rules.js';
import type { Config } from '../schema.js';

/** Returns the violations of rules that the schema cannot express, such as conflicts between options. */
export function ruleProblems(config: Config): RuleProblem[] {
  return rules.flatMap((rule) => rule(config));
}

const rules: readonly Rule[] = [
  listenersDoNotCollide,
  httpIsVersion1,
  proxiesAreAddresses,
  proxyProtocolHasProxies,
  clientCertificatesHaveAuthority,
  upstreamUrlsAreUrls,
  authoritiesAreForHttps,
  tracesHaveEndpoint,
  ...accessLogRules,
  routesAreDistinct,
  routesDifferForServices,
  routesHaveUpstreams,
  audienceIsNoUpstream,
  publicKeysUrlIsUrl,
  headFitsIntoRequest,
  ...operatorsRules,
  ...registryRules,
  ...oidcRules,
  ...redisRules,
  exitSourcesAreReadable,
];

/** Path and address of a listener; null if the listener is off. */
type Listener = readonly [path: string, address: { readonly host: string; readonly port: number } | null];

/** Rejects two listeners of one process at the same address, because the process would not start. */
function listenersDoNotCollide({ listen, registry, services }: Config): RuleProblem[] {
  const { operators } = services;
  const hasOperatorsApi = operators.tokenFile !== null || operators.registryKeys.length > 0;
  const processes: readonly (readonly Listener[])[] = [
    Object.entries(listen).map(([name, listener]) => [`listen.${name}`, listener]),
    [
      ['registry.listen', registry.listen],
      ['registry.console.listen', registry.console?.listen ?? null],
    ],
    [
      ['services.listen', services.listen],
      ['services.operators.listen', hasOperatorsApi ? operators.listen : null],
    ],
  ];
  return processes.flatMap(collisionsOf);
}

function collisionsOf(listeners: readonly Listener[]): RuleProblem[] {
  const problems: RuleProblem[] = [];
  const taken: { path: string; host: string; port: number }[] = [];
  for (const [path, address] of listeners) {
    if (address === null || address.port === 0) continue;
    const { host, port } = address;
    const other = taken.find((one) => one.port === port && hostsOverlap(one.host, host));
    taken.push({ path, host, port });
    if (other === undefined) continue;
    problems.push({
      path: `${path}.port`,
      message: `is already the port of ${other.path}; expected another port`,
      others: [`${path}.host`, `${other.path}.port`, `${other.path}.host`],
    });
  }
  return problems;
}

/**
 * Rejects HTTP/2, because Node's HTTP/2 server drops header fields with invalid values. A payout that loses its
 * Idempotency-Key is paid twice when retried. If X-Forwarded-For is lost, the address rules apply to the proxy instead
 * of the client.
 */
function httpIsVersion1({ listen: { https } }: Config): RuleProblem[] {
  if (https?.http2 !== true) return [];
  const message =
    'is no longer supported; expected false. The HTTP/2 server of Node drops header fields with invalid values, but ' +
    'delivers the request, so a payout can lose its Idempotency-Key. For HTTP/2 clients, put HAProxy, nginx or Caddy ' +
    'in front, as docs/connections.md shows';
  return [{ path: 'listen.https.http2', message }];
}

function hostsOverlap(one: string, other: string): boolean {
  return one.toLowerCase() === other.toLowerCase() || coversHost(one, other) || coversHost(other, one);
}

/**
 * Whether `everyAddress` is a wildcard address that includes the host. A listener on it also accepts connections to the
 * host. `::` includes IPv4 addresses too.
 */
function coversHost(everyAddress: string, host: string): boolean {
  return everyAddress === '::' || (everyAddress === '0.0.0.0' && !host.includes(':'));
}

function proxiesAreAddresses({ trustedProxies }: Config): RuleProblem[] {
  return proxyProblems('trustedProxies', trustedProxies);
}

/** Requires trusted proxies for the PROXY protocol. Without any, the gateway would close every connection. */
function proxyProtocolHasProxies({ proxyProtocol, trustedProxies }: Config): RuleProblem[] {
  if (!proxyProtocol || trustedProxies.length > 0) return [];
  const message =
    'would close every connection, because trustedProxies is empty; expected false, or the addresses of the load balancers in trustedProxies';
  return [{ path: 'proxyProtocol', message, others: ['trustedProxies'] }];
}

/**
 * Requires a CA file for client certificates: without it, Node would accept any certificate from a public CA. Also
 * rejects a CA file that has no effect because client certificates are off.
 */
function clientCertificatesHaveAuthority({ listen: { https } }: Config): RuleProblem[] {
  if (https === null || (https.clientCertificates === 'none') === (https.clientCaFile === null)) return [];
  const message =
    https.clientCaFile === null
      ? `expected a file, because listen.https.clientCertificates is ${https.clientCertificates}`
      : 'has no effect with listen.https.clientCertificates: none. Set this option to null, or set clientCertificates to request or require';
  return [{ path: 'listen.https.clientCaFile', message, others: ['listen.https.clientCertificates'] }];
}

function upstreamUrlsAreUrls({ upstreams }: Config): RuleProblem[] {
  return Object.entries(upstreams).flatMap(([name, { url }]) =>
    URL.canParse(url)
      ? []
      : [{ path: `upstreams.${name}.url`, message: 'is not a valid URL; expected one such as http://127.0.0.1:7080' }],
  );
}

/** Rejects a CA file for an upstream without TLS. It would suggest protection, but has no effect. */
function authoritiesAreForHttps({ upstreams }: Config): RuleProblem[] {
  return Object.entries(upstreams).flatMap(([name, { url, caFile }]) =>
    caFile === null || url.startsWith('https:')
      ? []
      : [
          {
            path: `upstreams.${name}.caFile`,
            message: 'applies only to an https:// upstream; expected null',
            others: [`upstreams.${name}.url`],
          },
        ],
  );
}

/**
 * Rejects a CA file or token without an effect: a token without an endpoint, or a CA file without an https endpoint.
 * Also rejects an invalid URL, which would otherwise fail only at the first trace.
 */
function tracesHaveEndpoint({ traces: { endpoint, tokenFile, caFile } }: Config): RuleProblem[] {
  const others = ['traces.endpoint'];
  if (endpoint !== null && !URL.canParse(endpoint)) {
    return [{ path: 'traces.endpoint', message: 'expected a URL such as http://127.0.0.1:4318/v1/traces' }];
  }
  const problems: RuleProblem[] = [];
  if (endpoint === null && tokenFile !== null) {
    problems.push({
      path: 'traces.tokenFile',
      message: 'has no effect without traces.endpoint; expected null',
      others,
    });
  }
  if (endpoint?.startsWith('https:') !== true && caFile !== null) {
    problems.push({ path: 'traces.caFile', message: 'applies only to an https:// endpoint; expected null', others });
  }
  return problems;
}

function routesAreDistinct({ routes }: Config): RuleProblem[] {
  const first = new Map<string, number>();
  return routes.flatMap(({ path }, index) => {
    const other = first.get(path);
    if (other === undefined) {
      first.set(path, index);
      return [];
    }
    const message = `is already the path of routes[${other}]; expected another path`;
    return [{ path: `routes[${index}].path`, message, others: [`routes[${other}].path`] }];
  });
}

/**
 * Rejects two routes with different resources whose paths some services treat as equal, such as paths that differ only
 * in letter case. A key for one resource would then also give access to the other.
 */
function routesDifferForServices({ routes }: Config): RuleProblem[] {
  const first = new Map<string, number>();
  return routes.flatMap(({ path, resource }, index) => {
    const folded = path.split('/').map(foldSegment).join('/');
    const other = first.get(folded) ?? index;
    first.set(folded, other);
    if (routes[other]?.resource === resource || routes[other]?.path === path) return [];
    const message =
      `equals the path of routes[${other}] except for letter case or a suffix such as .json, so a service might ` +
      `treat both as the same path. Use a different path, or set the same resource on both routes`;
    const others = [`routes[${index}].resource`, `routes[${other}].path`, `routes[${other}].resource`];
    return [{ path: `routes[${index}].path`, message, others }];
  });
}

function routesHaveUpstreams({ routes, upstreams }: Config): RuleProblem[] {
  const names = Object.keys(upstreams);
  const message =
    names.length === 0
      ? 'is not the name of an upstream, because upstreams is empty; expected an entry with this name in upstreams'
      : `is not the name of an upstream; expected ${names.join(', ')}`;
  return routes.flatMap(({ upstream }, index) =>
    Object.hasOwn(upstreams, upstream)
      ? []
      : [
          {
            path: `routes[${index}].upstream`,
            message,
            others: ['upstreams'],
          },
        ],
  );
}

/**
 * Rejects an `identity.audience` that is the name of an upstream. Every assertion contains this audience. So the
 * upstream with this name would also accept the assertions for other upstreams.
 */
function audienceIsNoUpstream({ identity: { audience }, upstreams }: Config): RuleProblem[] {
  if (audience === null || !Object.hasOwn(upstreams, audience)) return [];
  const message =
    'is the name of an upstream. Every assertion (x-gateway-assertion) names this audience, so this upstream would also accept assertions for other upstreams; expected null or another name';
  return [{ path: 'identity.audience', message, others: ['upstreams'] }];
}

/**
 * Rejects an invalid `identity.publicKeysUrl`, and one with a user or password: the services could not fetch it, and
 * their log would contain the password.
 */
function publicKeysUrlIsUrl({ identity: { publicKeysUrl } }: Config): RuleProblem[] {
  if (publicKeysUrl === null) return [];
  const path = 'identity.publicKeysUrl';
  if (!URL.canParse(publicKeysUrl))
    return [{ path, message: 'is not a valid URL; expected one such as http://127.0.0.1:9090/.well-known/jwks.json' }];
  const { username, password } = new URL(publicKeysUrl);
  return username + password === '' ? [] : [{ path, message: 'expected a URL without user and password' }];
}

/** Limits headersTimeoutSeconds to requestTimeoutSeconds, because Node does not create a server with a higher value. */
function headFitsIntoRequest({ limits }: Config): RuleProblem[] {
  const { headersTimeoutSeconds, requestTimeoutSeconds } = limits;
  if (headersTimeoutSeconds <= requestTimeoutSeconds) return [];
  const message = `expected at most limits.requestTimeoutSeconds, which is ${requestTimeoutSeconds}`;
  return [{ path: 'limits.headersTimeoutSeconds', message, others: ['limits.requestTimeoutSeconds'] }];
}

/**
 * Rejects invalid sources of the Tor exit list. A URL with a misspelt scheme would count as a file, and a password in a
 * URL would appear in the logs of proxies.
 */
function exitSourcesAreReadable({ torExits }: Config): RuleProblem[] {
  return torExits.sources.flatMap((entry, index) => {
    const problem = exitSourceProblem(entry);
    return problem === null ? [] : [{ path: `torExits.sources[${index}]`, message: problem }];
  });
}

function exitSourceProblem(entry: string): string | null {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(entry)) return null;
  const url = /^https?:/i.test(entry) && URL.canParse(entry) ? new URL(entry) : null;
  if (url === null) return 'expected an http or https URL or the path of a file';
  return url.username + url.password === '' ? null : 'expected a URL without user and password';
}
