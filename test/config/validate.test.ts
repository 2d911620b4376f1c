import fc from 'fast-check';
import t from 'tap';
import { closestName } from '../../src/config/closest-name.js';
import { configSchema } from '../../src/config/schema.js';
import { nonNull } from '../../src/config/schema/option.js';
import type { Option } from '../../src/config/schema/option.js';
import { validate } from '../../src/config/validate.js';
import { Check } from '../../src/typebox/typebox.js';
import { problemsOf } from './problems-of.js';

/** Every option of the schema with its path; entries of lists and named groups are `*`. */
function optionsOf(option: Option, path: readonly string[] = []): { path: readonly string[]; option: Option }[] {
  const { properties = {}, patternProperties = {}, items } = nonNull(option);
  const children: [string, Option][] = [
    ...Object.entries(properties),
    ...Object.values(patternProperties).map((child): [string, Option] => ['*', child]),
    ...(items ? [['*', items] as [string, Option]] : []),
  ];
  return [{ path, option }, ...children.flatMap(([name, child]) => optionsOf(child, [...path, name]))];
}

const options = optionsOf(configSchema);

t.test('each option of the contract exists with its default', (t) => {
  const leaves = options
    .filter(({ option }) => nonNull(option).properties === undefined)
    .map(({ path, option }) => `${path.join('.')} = ${JSON.stringify(option.default)}`)
    .map((line) => line.replace(/^(upstreams|routes) = .*/, '$1 = …'));
  t.strictSame(leaves, [
    'environment = "live"',
    'basePath = "/v1"',
    'listen.https.host = "0.0.0.0"',
    'listen.https.port = 8443',
    'listen.https.certFile = undefined',
    'listen.https.keyFile = undefined',
    'listen.https.certificates = []',
    'listen.https.certificates.*.certFile = undefined',
    'listen.https.certificates.*.keyFile = undefined',
    'listen.https.reloadSeconds = 10',
    'listen.https.minVersion = "TLSv1.2"',
    'listen.https.http2 = false',
    'listen.https.strictTransportSecuritySeconds = 31536000',
    'listen.https.ticketKeysFile = null',
    'listen.https.clientCertificates = "none"',
    'listen.https.clientCaFile = null',
    'listen.http.host = "0.0.0.0"',
    'listen.http.port = 8080',
    'listen.management.host = "127.0.0.1"',
    'listen.management.port = 9090',
    'trustedProxies = []',
    'trustedProxies.* = undefined',
    'proxyProtocol = false',
    'keyStore.kind = "redis"',
    'keyStore.memory.recordsFile = null',
    'keyStore.redis.url = "redis://127.0.0.1:6379"',
    'keyStore.redis.prefix = "mg:"',
    'keyStore.redis.username = null',
    'keyStore.redis.passwordFile = null',
    'keyStore.redis.caFile = null',
    'keyStore.redis.sentinel.masterName = "mymaster"',
    'keyStore.redis.sentinel.servers = undefined',
    'keyStore.redis.sentinel.servers.* = undefined',
    'keyStore.redis.sentinel.username = null',
    'keyStore.redis.sentinel.passwordFile = null',
    'keyStore.redis.sentinel.tls = null',
    'keyStore.redis.cluster = null',
    'keyStore.redis.cluster.* = undefined',
    'keyStore.redis.commandTimeoutMilliseconds = 200',
    'keyStore.redis.replicas = null',
    'keyStore.cache.maxEntries = 100000',
    'keyStore.cache.maxAgeSeconds = 60',
    'keyStore.cache.unknownMaxEntries = 100000',
    'keyStore.cache.unknownMaxAgeSeconds = 5',
    'keyStore.cache.maxStaleSeconds = 30',
    'keyStore.cache.preload = true',
    'keys.pepperFile = null',
    'keys.recordSecretFile = null',
    'torExits.enabled = true',
    'torExits.sources = ["https://check.torproject.org/torbulkexitlist"]',
    'torExits.sources.* = undefined',
    'torExits.refreshMinutes = 60',
    'torExits.snapshotFile = "var/tor-exits.json"',
    'torExits.whenUnavailable = "deny"',
    'torExits.maxAgeHours = 48',
    'torExits.allowReserved = false',
    'geoip.countryFile = null',
    'geoip.asnFile = null',
    'geoip.anonymousIpFile = null',
    'upstreams = …',
    'upstreams.*.url = undefined',
    'upstreams.*.timeoutSeconds = 30',
    'upstreams.*.maxInFlight = 256',
    'upstreams.*.boundIdle = 1024',
    'upstreams.*.readsBodies = false',
    'upstreams.*.caFile = null',
    'routes = …',
    'routes.*.path = undefined',
    'routes.*.upstream = undefined',
    'routes.*.resource = undefined',
    'registry.listen.host = "127.0.0.1"',
    'registry.listen.port = 9443',
    'registry.listen.certFile = null',
    'registry.listen.keyFile = null',
    'registry.listen.clientCaFile = null',
    'registry.behindProxy = null',
    'registry.behindProxy.* = undefined',
    'registry.hosts = []',
    'registry.hosts.* = undefined',
    'registry.database.url = "sqlite:var/registry.db"',
    'registry.tokenFile = null',
    'registry.bootstrap = "on"',
    'registry.reasonFor = []',
    'registry.reasonFor.* = undefined',
    'registry.approvals.goLive = true',
    'registry.approvals.owners = true',
    'registry.approvals.fundingAbove = null',
    'registry.approvals.fundingAbove.* = undefined',
    'registry.approvals.changes = true',
    'registry.oidc.issuer = undefined',
    'registry.oidc.clientId = undefined',
    'registry.oidc.clientSecretFile = undefined',
    'registry.oidc.scope = "openid profile offline_access"',
    'registry.oidc.roles = []',
    'registry.oidc.roles.*.claim = undefined',
    'registry.oidc.roles.*.value = undefined',
    'registry.oidc.roles.*.roles = undefined',
    'registry.oidc.roles.*.roles.* = undefined',
    'registry.oidc.merchant.claim = undefined',
    'registry.console.listen.host = "127.0.0.1"',
    'registry.console.listen.port = 7443',
    'registry.console.listen.certFile = null',
    'registry.console.listen.keyFile = null',
    'registry.console.origin = null',
    'registry.console.merchantApi.liveUrl = null',
    'registry.console.merchantApi.testUrl = null',
    'registry.console.merchantApi.caFile = null',
    'registry.console.services.url = undefined',
    'registry.console.services.caFile = null',
    'registry.witness.name = "merchant-gateway-registry"',
    'registry.witness.keyFile = undefined',
    'registry.servicesToken.keyFile = undefined',
    'registry.unusual.enabled = true',
    'registry.unusual.off = []',
    'registry.unusual.off.* = undefined',
    'registry.unusual.learnDays = 7',
    'registry.unusual.surgeLearnDays = 35',
    'registry.unusual.idleDays = 30',
    'registry.unusual.surgeFactor = 10',
    'registry.unusual.surgeRequests = 200',
    'registry.unusual.newAddresses = 20',
    'registry.unusual.refusals = 30',
    'registry.unusual.keepDays = 400',
    'registry.unusual.webhooks = []',
    'registry.unusual.webhooks.*.url = undefined',
    'registry.unusual.webhooks.*.secretFile = undefined',
    'registry.retention.eventsDays = null',
    'registry.usage.hoursDays = 90',
    'registry.usage.refusalsDays = 7',
    'registry.usage.addresses = "full"',
    'services.listen.host = "127.0.0.1"',
    'services.listen.port = 7080',
    'services.database.url = "sqlite:var/services.db"',
    'services.database.maxConnections = 10',
    'services.database.connectTimeoutSeconds = 5',
    'services.database.statementTimeoutSeconds = 10',
    'services.operators.listen.host = "127.0.0.1"',
    'services.operators.listen.port = 7081',
    'services.operators.listen.certFile = null',
    'services.operators.listen.keyFile = null',
    'services.operators.tokenFile = null',
    'services.operators.registryKeys = []',
    'services.operators.registryKeys.* = undefined',
    'services.operators.trail.url = undefined',
    'services.operators.trail.tokenFile = undefined',
    'services.operators.trail.caFile = null',
    'services.bank.delaySeconds = 1',
    'services.bank.failingAccounts = ["0000000000"]',
    'services.bank.failingAccounts.* = undefined',
    'identity.signingKeyFile = null',
    'identity.publishedKeyFiles = []',
    'identity.publishedKeyFiles.* = undefined',
    'identity.issuer = "merchant-gateway"',
    'identity.audience = null',
    'identity.lifetimeSeconds = 60',
    'identity.publicKeysUrl = null',
    'accessLog.destination = "stdout"',
    'accessLog.secretFile = null',
    'accessLog.checkpoints.name = "merchant-gateway"',
    'accessLog.checkpoints.keyFile = undefined',
    'accessLog.checkpoints.file = null',
    'accessLog.checkpoints.https.url = undefined',
    'accessLog.checkpoints.https.tokenFile = null',
    'accessLog.checkpoints.https.caFile = null',
    'accessLog.checkpoints.syslog.url = undefined',
    'accessLog.checkpoints.syslog.caFile = null',
    'accessLog.checkpoints.everySeconds = 10',
    'accessLog.checkpoints.witness.registerSeconds = 2',
    'accessLog.checkpoints.witness.required = false',
    'accessLog.checkpoints.witness.publicKey = null',
    'accessLog.onFailure = "refuse"',
    'accessLog.reserveBytes = 268435456',
    'usage.enabled = true',
    'usage.merchantMetrics = 0',
    'traces.endpoint = null',
    'traces.tokenFile = null',
    'traces.caFile = null',
    'traces.sampleOneIn = 100',
    'log.level = "info"',
    'limits.headerBytes = 16384',
    'limits.targetBytes = 8192',
    'limits.bodyBytes = 1048576',
    'limits.headersTimeoutSeconds = 10',
    'limits.requestTimeoutSeconds = 30',
    'limits.minBodyBytesPerSecond = 4096',
    'limits.answerTimeoutSeconds = 120',
    'limits.connections = 10000',
    'limits.connectionsPerAddress = 4096',
    'limits.memory = null',
    'limits.handshakesPerSecond = 100',
    'limits.handshakeBurst = 200',
    'limits.keepAliveTimeoutSeconds = 72',
    'limits.eventLoopDelayMilliseconds = 1000',
    'limits.drainDelaySeconds = 0',
    'limits.drainTimeoutSeconds = 30',
    'throttle.enabled = true',
    'throttle.badKeys = 3000',
    'throttle.totalBadKeys = 10000',
    'throttle.windowSeconds = 60',
    'throttle.pauseSeconds = 60',
    'throttle.lookupsPerSecond = 20',
    'throttle.totalLookupsPerSecond = 2000',
    'throttle.maxSources = 100000',
    'rateLimit.requestsPerSecond = null',
    'rateLimit.burst = 100',
    'rateLimit.shared = false',
  ]);
  t.end();
});

t.test('each option has a description, and a valid default or example', (t) => {
  for (const { path, option } of options) {
    const name = path.join('.');
    const entry = path.at(-1) === '*';
    if (!entry) t.ok(option.description, `${name} has a description`);
    const inner = nonNull(option);
    if (inner.properties !== undefined || inner.patternProperties !== undefined || inner.items !== undefined) continue;
    const standIn = option.default === undefined ? inner.examples?.[0] : option.default;
    t.ok(Check(option, standIn), `${name} has a valid default or example`);
  }
  t.end();
});

t.test('for any input, the resulting configuration matches the schema', (t) => {
  const paths = options.map(({ path }) => path.map((part) => (part === '*' ? '0' : part)));
  const place = fc.tuple(fc.constantFrom(...paths), fc.oneof(fc.anything(), fc.constantFrom('', [], {}, null, [null])));
  fc.assert(
    fc.property(fc.array(place, { maxLength: 5 }), (places) => {
      const given: Record<string, unknown> = {};
      for (const [path, value] of places) {
        let at: Record<string, unknown> = given;
        for (const part of path.slice(0, -1)) {
          const before = at[part];
          // Replaces an earlier value that cannot have properties, such as a string, by an empty object.
          at = at[part] = (typeof before === 'object' && before !== null ? before : {}) as Record<string, unknown>;
        }
        at[path.at(-1) ?? 'x'] = value;
      }
      return Check(configSchema, validate(configSchema, given).value);
    }),
  );
  t.end();
});

t.test('a value of another form is rejected with the expected form', (t) => {
  const cases: readonly [string, string][] = [
    ['[]', 'expected options in the form name: value'],
    ['text', 'expected options in the form name: value'],
    ['environment: LIVE', 'environment: expected live or test'],
    ['environment: null', 'environment: expected live or test'],
    ['basePath: v1', 'basePath: expected a path like /v1'],
    ['basePath: /', 'basePath: expected'],
    ['basePath: /v1/', 'basePath: expected'],
    ['basePath: /a/../b', 'basePath: expected'],
    ['basePath: /a//b', 'basePath: expected'],
    ['basePath: "/a%62"', 'basePath: expected'],
    ['basePath: "/a\\n"', 'basePath: expected'],
    ['listen: { http: { port: 65536 } }', 'listen.http.port: expected a whole number from 0 to 65535'],
    ['listen: { http: { port: -1 } }', 'listen.http.port: expected a whole number'],
    ['listen: { http: { port: 80.5 } }', 'listen.http.port: expected a whole number'],
    ['listen: { http: { port: "80" } }', 'listen.http.port: expected a whole number'],
    ['listen: { http: { host: "" } }', 'listen.http.host: expected an IP address or a host name'],
    ['listen: { http: true }', 'listen.http: expected a group of options, or null'],
    ['listen: { https: { certFile: a } }', 'listen.https.keyFile: is required'],
    ['listen: { https: { keyFile: a } }', 'listen.https.certFile: is required'],
    ['listen: { https: {} }', 'listen.https.certFile: is required'],
    ['trustedProxies: 10.0.0.0/8', 'trustedProxies: expected a list of IP addresses and CIDRs'],
    ['trustedProxies: [1]', 'trustedProxies[0]: expected an IP address or CIDR'],
    ['trustedProxies: true', 'trustedProxies: expected a list'],
    ['keys: { pepperFile: 5 }', 'keys.pepperFile: expected the path of a file, or null'],
    ['torExits: { sources: [a, ""] }', 'torExits.sources[1]: expected an http or https URL or the path of a file'],
    ['torExits: { enabled: yes }', 'torExits.enabled: expected true or false'],
    ['upstreams: null', 'upstreams: expected names'],
    ['upstreams: { a: }', 'upstreams.a.url: is required'],
    ['upstreams: { A: { url: "http://a" } }', 'upstreams.A: is not a valid name'],
    ['upstreams: { a: { url: "http://a", verify: false } }', 'upstreams.a.verify: is not an option'],
    ['upstreams: { a: { url: "http://a", timeoutSeconds: 601 } }', 'upstreams.a.timeoutSeconds: expected'],
    ['routes: {}', 'routes: expected a list of routes'],
    ['routes: [null]', 'routes[0].path: is required'],
    ['routes: [{ path: /a, upstream: transactions, resource: "a:b" }]', 'routes[0].resource: expected a name'],
    ['accessLog: { destination: null }', 'accessLog.destination: expected stdout or the path of a file'],
    ['services: { database: { url: "mysql://x" } }', 'services.database.url: expected sqlite:<file> or postgres://…'],
    ['log: { level: verbose }', 'log.level: expected trace, debug, info, warn, error or silent'],
    ['limits: { bodyBytes: 1MiB }', 'limits.bodyBytes: expected a whole number'],
    ['limits: { bodyBytes: .inf }', 'limits.bodyBytes: expected a whole number'],
    ['limits: 5', 'limits: expected a group of options'],
    ['limit: {}', 'limit: is not an option; did you mean limits?'],
    ['"li\\u202e\\nmits": {}', '["li\\u202e\\nmits"]: is not an option'],
    ['__proto__: {}', '__proto__: is not an option'],
    ['constructor: {}', 'constructor: is not an option'],
    ['keyStore: { memory: { recordFile: x } }', 'recordFile: is not an option; did you mean recordsFile?'],
    ['keys: { salt: x }', 'keys.salt: is not an option; expected one of pepperFile, recordSecretFile'],
  ];
  for (const [text, expected] of cases) {
    const problems = problemsOf({ text });
    t.ok(problems[0]?.replace('line 1: ', '').includes(expected), `${text} → ${String(problems[0])}`);
  }
  t.end();
});

t.test('a route path has exactly one spelling', (t) => {
  const withPath = (path: string) => ({
    text: JSON.stringify({ routes: [{ path, upstream: 'payouts', resource: 'payouts' }] }),
  });
  for (const path of ['/a', '/a/b', '/a.b', '/...', '/.well-known', '/~a_b-c'])
    t.same(problemsOf(withPath(path)), [], path);
  const bad = [
    '',
    '/',
    'a',
    '/a/',
    '//a',
    '/a//b',
    '/.',
    '/..',
    '/a/..',
    '/../a',
    '/a/./b',
    '/%61',
    '/a b',
    '/a?b',
    '/ä',
  ];
  for (const path of bad) t.match(problemsOf(withPath(path)), [/routes\[0\]\.path: expected a path/], path);
  t.end();
});

t.test('an overlong list is rejected, not truncated', (t) => {
  const text = JSON.stringify({ torExits: { sources: Array.from({ length: 33 }, (_, index) => `${index}.txt`) } });
  t.same(problemsOf({ text }), ['line 1: torExits.sources: has 33 entries; expected at most 32']);
  t.end();
});

t.test('an invalid group is one problem; its options are not also reported as missing', (t) => {
  t.same(problemsOf({ text: 'listen: { https: true }' }), [
    'line 1: listen.https: expected a group of options, or null',
  ]);
  t.end();
});

t.test('an upstream is only an http or https origin', (t) => {
  const good = ['http://a', 'https://a.test:8443', 'http://127.0.0.1:80', 'http://[::1]:7080'];
  const bad = ['a', 'ftp://a', 'http://a/', 'http://a/b', 'http://a?b', 'http://a#b', 'http://u:p@a', 'http://a\\b'];
  const broken = ['http://a b', 'http:a', 'http://', 'HTTP', 'http://a\t'];
  const unparsable = ['http://a:99999', 'http://[::1'];
  const withUrl = (url: string) => ({ text: JSON.stringify({ upstreams: { a: { url } }, routes: [] }) });
  for (const url of good) t.same(problemsOf(withUrl(url)), [], url);
  for (const url of [...bad, ...broken]) t.match(problemsOf(withUrl(url)), [/upstreams\.a\.url: expected/], url);
  const sentence = 'upstreams.a.url: is not a valid URL; expected one such as http://127.0.0.1:7080';
  for (const url of unparsable) t.same(problemsOf(withUrl(url)), [`line 1: ${sentence}`], url);
  t.end();
});

t.test("each form of an option's value is accepted", (t) => {
  for (const text of [
    'keyStore: { kind: memory }',
    'keyStore: { kind: redis, redis: { url: "redis://other" } }',
    'keyStore: { redis: { url: "redis://127.0.0.1:6379", prefix: "mg:" } }',
    'keyStore: { cache: { maxEntries: 1 } }',
    'torExits: { sources: ["https://a.test/list", exits.txt, /var/exits] }',
    'torExits: { snapshotFile: a, whenUnavailable: allow, maxAgeHours: 1 }',
    'geoip: { asnFile: a.mmdb }',
    'registry: { listen: { port: 1 }, tokenFile: a, database: { url: "postgres://a/b" } }',
    'identity: { signingKeyFile: a }',
    'accessLog: { onFailure: continue, secretFile: a }',
    'services: { database: { url: "postgres://a/b" } }',
    'services: { database: { url: "sqlite:other.db" } }',
  ]) {
    t.same(problemsOf({ text }), [], text);
  }
  t.end();
});

t.test('no message contains a value, because it could be a secret', (t) => {
  const secret = 'hunter2';
  for (const { path, option } of options) {
    if (nonNull(option).enum !== undefined) continue;
    const parts = path.map((part) => (part === '*' ? 'a' : part));
    for (const value of [secret, `redis://u:${secret}@h`, [secret], { a: secret }]) {
      const given = parts.reduceRight<unknown>((inner, part) => ({ [part]: inner }), value);
      t.notMatch(problemsOf({ text: JSON.stringify(given) }), new RegExp(secret), path.join('.'));
    }
  }
  t.notMatch(problemsOf({ text: `keyStore: { redis: { url: "${secret} } }` }), new RegExp(secret), 'malformed YAML');
  t.notMatch(problemsOf({ text: `a: *${secret}\nb: !${secret} x\n- ${secret}` }), new RegExp(secret), 'malformed YAML');
  t.end();
});

t.test('a misspelt name gets a suggestion, and an unrelated one does not', (t) => {
  const names = ['certFile', 'keyFile', 'host', 'port'];
  t.equal(closestName('cert_file', names), 'certFile');
  t.equal(closestName('KeyFile', names), 'keyFile');
  t.equal(closestName('KEY__FILE_', names), 'keyFile');
  t.equal(closestName('prot', ['port']), undefined, 'two of four letters differ');
  t.equal(closestName('ports', names), 'port');
  t.equal(closestName('passphrase', names), undefined);
  t.equal(closestName('', names), undefined);
  t.end();
});

t.test('the input is not modified', (t) => {
  const given = { listen: { http: { port: 1 } }, routes: [{ path: '/a' }] };
  const before = structuredClone(given);
  validate(configSchema, given);
  t.same(given, before);
  t.end();
});
