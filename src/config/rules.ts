import { isIPv4 } from 'node:net';
import { type IpRange, parseIpRange } from '../policy/ip-ranges.js';
import { foldSegment } from './closest-name.js';
import type { Rule, RuleProblem } from './config-error.js';
import { redisRules } from './redis-rules.js';
import type { Config } from './schema.js';

/** What keeps the operators' API, which moves money, from everybody else. */
const operatorsRules: readonly Rule[] = [certificateIsWhole, tlsBeyondLoopback, upstreamIsNotForOperators];

const listen = 'services.operators.listen';

function certificateIsWhole({ services: { operators } }: Config): RuleProblem[] {
  const { certFile, keyFile } = operators.listen;
  if ((certFile === null) === (keyFile === null)) return [];
  const [missing, other] = certFile === null ? ['certFile', 'keyFile'] : ['keyFile', 'certFile'];
  const message = `expected a file, because ${listen}.${other} has one`;
  return [{ path: `${listen}.${missing}`, message, others: [`${listen}.${other}`] }];
}

/** The token would be read by whoever is on the way. */
function tlsBeyondLoopback({ services: { operators } }: Config): RuleProblem[] {
  const { host, certFile, keyFile } = operators.listen;
  if (isLoopback(host) || certFile !== null || keyFile !== null) return [];
  const message = `is beyond this machine, where the operators' API speaks TLS alone; expected 127.0.0.1, or ${listen}.certFile and keyFile`;
  return [{ path: `${listen}.host`, message, others: [`${listen}.certFile`] }];
}

/** The gateway would send what merchants ask for to the API that moves money. */
function upstreamIsNotForOperators({ upstreams, services: { operators } }: Config): RuleProblem[] {
  if (operators.tokenFile === null) return [];
  const { port, host } = operators.listen;
  return Object.entries(upstreams).flatMap(([name, { url }]) => {
    if (!URL.canParse(url)) return [];
    const target = new URL(url);
    const targetPort = Number(target.port || (target.protocol === 'https:' ? 443 : 80));
    const isSameHost = target.hostname === host || (isLoopback(target.hostname) && isLoopback(host));
    if (port === 0 || targetPort !== port || !isSameHost) return [];
    const message =
      "leads to the operators' API, which is for operators alone; expected the address of services.listen";
    return [{ path: `upstreams.${name}.url`, message, others: [`${listen}.port`] }];
  });
}

function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
  return name === 'localhost' || name === '::1' || (isIPv4(name) && name.startsWith('127.'));
}

/** What is wrong between options that are each right by themselves. */
export function ruleProblems(config: Config): RuleProblem[] {
  return rules.flatMap((rule) => rule(config));
}

const rules: readonly Rule[] = [
  listenersDoNotCollide,
  httpIsVersion1,
  proxiesAreAddresses,
  proxiesAreNotEveryone,
  proxyProtocolHasProxies,
  clientCertificatesHaveAuthority,
  upstreamUrlsAreUrls,
  authoritiesAreForHttps,
  tracesHaveWhereTo,
  logGoesWhereItSays,
  routesAreDistinct,
  routesDifferForServices,
  routesHaveUpstreams,
  audienceIsNoUpstream,
  headFitsIntoRequest,
  ...operatorsRules,
  ...redisRules,
  exitSourcesAreReadable,
];

function listenersDoNotCollide({ listen }: Config): RuleProblem[] {
  const problems: RuleProblem[] = [];
  const taken: { name: string; host: string; port: number }[] = [];
  for (const [name, listener] of Object.entries(listen)) {
    if (listener === null || listener.port === 0) continue;
    const { host, port } = listener;
    const other = taken.find((one) => one.port === port && hostsOverlap(one.host, host));
    taken.push({ name, host, port });
    if (other === undefined) continue;
    problems.push({
      path: `listen.${name}.port`,
      message: `is that of listen.${other.name} already; expected another port`,
      others: [`listen.${name}.host`, `listen.${other.name}.port`, `listen.${other.name}.host`],
    });
  }
  return problems;
}

/** A lost Idempotency-Key pays twice; a lost X-Forwarded-For has the proxy's address judged in place of the client's. */
function httpIsVersion1({ listen: { https } }: Config): RuleProblem[] {
  if (https?.http2 !== true) return [];
  const message =
    'is no longer offered: the HTTP/2 of Node drops header fields with invalid values and delivers the request without ' +
    'them, so that a payout can lose its Idempotency-Key; expected false. For HTTP/2 clients, put HAProxy, nginx or Caddy ' +
    'in front, as docs/connections.md shows';
  return [{ path: 'listen.https.http2', message }];
}

function hostsOverlap(one: string, other: string): boolean {
  return one.toLowerCase() === other.toLowerCase() || holds(one, other) || holds(other, one);
}

/** A socket on `::` takes IPv4 as well. */
function holds(everyAddress: string, host: string): boolean {
  return everyAddress === '::' || (everyAddress === '0.0.0.0' && !host.includes(':'));
}

function proxiesAreAddresses({ trustedProxies }: Config): RuleProblem[] {
  return trustedProxies.flatMap((entry, index) =>
    parseIpRange(entry) === null
      ? [{ path: `trustedProxies[${index}]`, message: 'expected an IP address or CIDR, such as 10.0.0.0/8' }]
      : [],
  );
}

/** The widest private networks are 10.0.0.0/8 and fc00::/7; what is wider, or as wide elsewhere in IPv6, holds clients. */
function proxiesAreNotEveryone({ trustedProxies }: Config): RuleProblem[] {
  return trustedProxies.flatMap((entry, index) => {
    const range = parseIpRange(entry);
    if (range === null || range.prefix >= shortestPrefix(range)) return [];
    const isIpv4Mapped = range.family === 4 && entry.includes(':');
    const shortest = shortestPrefix(range) + (isIpv4Mapped ? 96 : 0);
    const message = `trusts so many addresses that any client could choose its own: expected a prefix of /${shortest} or longer`;
    return [{ path: `trustedProxies[${index}]`, message }];
  });
}

/** Otherwise every connection would be closed. */
function proxyProtocolHasProxies({ proxyProtocol, trustedProxies }: Config): RuleProblem[] {
  if (!proxyProtocol || trustedProxies.length > 0) return [];
  const message = 'closes every connection that is not from a trusted proxy: expected the balancers in trustedProxies';
  return [{ path: 'proxyProtocol', message, others: ['trustedProxies'] }];
}

/** Node would take every certificate of a public authority for one of a client. */
function clientCertificatesHaveAuthority({ listen: { https } }: Config): RuleProblem[] {
  if (https === null || (https.clientCertificates === 'none') === (https.clientCaFile === null)) return [];
  const message =
    https.clientCaFile === null
      ? `expected a file, because listen.https.clientCertificates is ${https.clientCertificates}`
      : 'is without effect; expected null, or listen.https.clientCertificates: request or require';
  return [{ path: 'listen.https.clientCaFile', message, others: ['listen.https.clientCertificates'] }];
}

function shortestPrefix({ family, first }: IpRange): number {
  if (family === 4) return 8;
  const isUniqueLocal = first >> 121n === 0b1111110n;
  return isUniqueLocal ? 7 : 16;
}

function upstreamUrlsAreUrls({ upstreams }: Config): RuleProblem[] {
  return Object.entries(upstreams).flatMap(([name, { url }]) =>
    URL.canParse(url) ? [] : [{ path: `upstreams.${name}.url`, message: 'expected a host and, if need be, a port' }],
  );
}

/** A file without effect would look like protection. */
function authoritiesAreForHttps({ upstreams }: Config): RuleProblem[] {
  return Object.entries(upstreams).flatMap(([name, { url, caFile }]) =>
    caFile === null || url.startsWith('https:')
      ? []
      : [
          {
            path: `upstreams.${name}.caFile`,
            message: 'is for an https:// upstream; expected null',
            others: [`upstreams.${name}.url`],
          },
        ],
  );
}

/** The same; and an endpoint that is none would be found out only by the first trace. */
function tracesHaveWhereTo({ traces: { endpoint, tokenFile, caFile } }: Config): RuleProblem[] {
  const others = ['traces.endpoint'];
  if (endpoint !== null && !URL.canParse(endpoint)) {
    return [{ path: 'traces.endpoint', message: 'expected a URL such as http://127.0.0.1:4318/v1/traces' }];
  }
  const problems: RuleProblem[] = [];
  if (endpoint === null && tokenFile !== null) {
    problems.push({
      path: 'traces.tokenFile',
      message: 'is for an endpoint, and there is none; expected null',
      others,
    });
  }
  if (endpoint?.startsWith('https:') !== true && caFile !== null) {
    problems.push({ path: 'traces.caFile', message: 'is for an https:// endpoint; expected null', others });
  }
  return problems;
}

/** What was meant for a stream would go into a file of that name, which nobody reads and the disk fills up with. */
function logGoesWhereItSays({ accessLog: { destination, checkpoints } }: Config): RuleProblem[] {
  if (checkpoints?.file === destination)
    return [
      {
        path: 'accessLog.checkpoints.file',
        message: 'expected another file than the log itself',
        others: ['accessLog.destination'],
      },
    ];
  if (destination === 'stdout' || !/^\s*(?:stdout|stderr)\s*$/i.test(destination)) return [];
  return [{ path: 'accessLog.destination', message: 'expected stdout, in lower case, or the path of a file' }];
}

function routesAreDistinct({ routes }: Config): RuleProblem[] {
  const first = new Map<string, number>();
  return routes.flatMap(({ path }, index) => {
    const other = first.get(path);
    if (other === undefined) {
      first.set(path, index);
      return [];
    }
    const message = `is that of routes[${other}] already; expected another path`;
    return [{ path: `routes[${index}].path`, message, others: [`routes[${other}].path`] }];
  });
}

/** A key for the one resource would open the other one at a service that reads both paths alike. */
function routesDifferForServices({ routes }: Config): RuleProblem[] {
  const first = new Map<string, number>();
  return routes.flatMap(({ path, resource }, index) => {
    const folded = path.split('/').map(foldSegment).join('/');
    const other = first.get(folded) ?? index;
    first.set(folded, other);
    if (routes[other]?.resource === resource || routes[other]?.path === path) return [];
    const message =
      `differs from that of routes[${other}] only in letter case or behind a dot, and a service may read both alike; ` +
      `expected another path, or the same resource`;
    const others = [`routes[${index}].resource`, `routes[${other}].path`, `routes[${other}].resource`];
    return [{ path: `routes[${index}].path`, message, others }];
  });
}

function routesHaveUpstreams({ routes, upstreams }: Config): RuleProblem[] {
  const expected = Object.keys(upstreams).join(', ') || 'an upstream, and there is none';
  return routes.flatMap(({ upstream }, index) =>
    Object.hasOwn(upstreams, upstream)
      ? []
      : [
          {
            path: `routes[${index}].upstream`,
            message: `is not the name of an upstream; expected ${expected}`,
            others: ['upstreams'],
          },
        ],
  );
}

/** It is in the assertions for every upstream, and each of them would be accepted at that one. */
function audienceIsNoUpstream({ identity: { audience }, upstreams }: Config): RuleProblem[] {
  if (audience === null || !Object.hasOwn(upstreams, audience)) return [];
  const message =
    'is the name of an upstream, at which assertions for all others would be accepted; expected null or another name';
  return [{ path: 'identity.audience', message, others: ['upstreams'] }];
}

/** Node refuses to start a server in which it is otherwise. */
function headFitsIntoRequest({ limits }: Config): RuleProblem[] {
  const { headersTimeoutSeconds, requestTimeoutSeconds } = limits;
  if (headersTimeoutSeconds <= requestTimeoutSeconds) return [];
  const message = `expected at most limits.requestTimeoutSeconds, which is ${requestTimeoutSeconds}`;
  return [{ path: 'limits.headersTimeoutSeconds', message, others: ['limits.requestTimeoutSeconds'] }];
}

/** A misspelt scheme would be taken for a file; a password in an URL would stand in logs of everything on the way. */
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
  return url.username + url.password === '' ? null : 'expected a URL without a user and a password';
}
