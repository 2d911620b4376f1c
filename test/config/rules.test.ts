import t from 'tap';
import { gatewayProblems, startProblems } from '../../src/config/config-notes.js';
import { loadConfig } from '../../src/config/load.js';
import { keyText, NoteSigner } from '../../src/evidence/signed-note.js';
import { roleNames, roles } from '../../src/registry/administrators/roles.js';
import { problemsOf } from './problems-of.js';

const tls = 'https: { certFile: a, keyFile: b }';
const { key: instanceKey, receiptKey } = NoteSigner.inMemory('control.example');

t.test('contradicting options are rejected', (t) => {
  const cases: readonly [string, readonly string[]][] = [
    [
      'registry: { listen: { host: 10.0.0.7, keyFile: a } }',
      ['registry.listen.certFile: expected a file, because registry.listen.keyFile is set'],
    ],
    ['registry: { listen: { clientCaFile: a } }', ['registry.listen.clientCaFile: has no effect without']],
    ['registry: { listen: { certFile: a, keyFile: b, clientCaFile: c }, hosts: [a.example, "[::1]"] }', []],
    ['registry: { behindProxy: [10.0.0.0/8, proxy] }', ['registry.behindProxy[1]: expected an IP address or CIDR']],
    ['registry: { behindProxy: [0.0.0.0/0] }', ['registry.behindProxy[0]: is so wide that it includes clients']],
    ['registry: { behindProxy: [10.0.0.7] }', []],
    ['registry: { behindProxy: [] }', ['registry.behindProxy: is an empty list']],
    ['registry: { console: {} }', []],
    ['registry: { console: { listen: { host: "::1", port: 0 } } }', []],
    ['registry: { console: { origin: "https://console.example.com:7443", listen: { host: 0.0.0.0 } } }', []],
    ['registry: { console: { origin: "http://localhost:7443" } }', []],
    [
      'registry: { console: { listen: { host: 0.0.0.0, certFile: a, keyFile: b } } }',
      ['registry.console.origin: is required, because registry.console.listen.host is not a loopback address'],
    ],
    [
      'registry: { console: { origin: "http://console.example.com" } }',
      ['registry.console.origin: expected https, because http is accepted only for loopback addresses'],
    ],
    [
      'registry: { console: { origin: "https://Console.example.com:443" } }',
      [
        'registry.console.origin: is not an origin in the form that browsers send; expected https://console.example.com',
      ],
    ],
    [
      'registry: { console: { services: { url: "http://127.0.0.1:7081" } } }',
      ['registry.servicesToken: expected keyFile, because registry.console.services is set'],
    ],
    [
      'registry: { servicesToken: { keyFile: k }, console: { services: { url: "https://services.example.com", caFile: a } } }',
      [],
    ],
    [
      'registry: { servicesToken: { keyFile: k }, console: { services: { url: "http://services.example.com" } } }',
      ['registry.console.services.url: expected https, because http is accepted only for loopback addresses'],
    ],
    [
      'registry: { servicesToken: { keyFile: k }, console: { services: { url: "http://127.0.0.1:1", caFile: a } } }',
      ['registry.console.services.caFile: has no effect for an http:// URL; expected null'],
    ],
    [
      'registry: { console: { listen: { certFile: a } } }',
      ['registry.console.listen.keyFile: expected a file, because registry.console.listen.certFile is set'],
    ],
    [
      'services: { operators: { listen: { host: 0.0.0.0 } } }',
      ['services.operators.listen.host: is not a loopback address'],
    ],
    [
      'services: { operators: { listen: { host: 10.0.0.7, certFile: a } } }',
      ['services.operators.listen.keyFile: expected a file, because services.operators.listen.certFile is set'],
    ],
    ['services: { operators: { listen: { host: 10.0.0.7, certFile: a, keyFile: b } } }', []],
    ['services: { operators: { listen: { host: localhost } } }', []],
    ['services: { operators: { listen: { host: "::1" } } }', []],
    [
      'upstreams: { a: { url: "http://localhost:7081" } }\nroutes: []\nservices: { operators: { tokenFile: t } }',
      ["upstreams.a.url: is the address of the operators' API"],
    ],
    ['upstreams: { a: { url: "http://localhost:7080" } }\nroutes: []\nservices: { operators: { tokenFile: t } }', []],
    [
      'services: { operators: { registryKeys: [a] } }',
      ['services.operators.trail: is required with services.operators.registryKeys; expected the url'],
    ],
    ...(
      [
        ['url: "https://registry.example", tokenFile: t, caFile: c', []],
        ['url: "http://127.0.0.1:9443", tokenFile: t', []],
        ['url: "http://[::1]:9443", tokenFile: t', []],
        [
          'url: "http://registry.example", tokenFile: t',
          ['services.operators.trail.url: expected https, because http is accepted only for loopback addresses'],
        ],
        ['url: "http://127.0.0.1", tokenFile: t, caFile: c', ['services.operators.trail.caFile: has no effect']],
        ['url: "http://:9443", tokenFile: t', ['services.operators.trail.url: is not a valid URL']],
        ['url: "https://a:b@registry.example", tokenFile: t', ['services.operators.trail.url: expected an http']],
      ] as const
    ).map(([trail, problems]): [string, readonly string[]] => [
      `services: { operators: { registryKeys: [a], trail: { ${trail} } } }`,
      problems,
    ]),
    [
      'upstreams: { a: { url: "http://localhost:7081" } }\nroutes: []\nservices: { operators: { registryKeys: [k], trail: { url: "http://127.0.0.1:1", tokenFile: t } } }',
      ["upstreams.a.url: is the address of the operators' API"],
    ],
    // While the API is disabled its port may be used by another listener.
    ['upstreams: { a: { url: "http://localhost:7081" } }\nroutes: []', []],
    ['routes: [{ path: /a, upstream: b, resource: a }]', ['routes[0].upstream: is not the name of an upstream']],
    ['upstreams: {}\nroutes: []', []],
    [
      'upstreams: {}\nroutes: [{ path: /a, upstream: b, resource: a }]',
      [
        'routes[0].upstream: is not the name of an upstream, because upstreams is empty; expected an entry with this name in upstreams',
      ],
    ],
    [
      'routes: [{ path: /a, upstream: payouts, resource: a }, { path: /a, upstream: payouts, resource: b }]',
      ['routes[1].path: is already the path of routes[0]; expected another path'],
    ],
    ...[
      ['/dev/payouts', '/dev/Payouts'],
      ['/dev/payouts', '/dev/payouts.json'],
      ['/Dev.x/payouts', '/dev/PAYOUTS'],
      ['/v1.0/payouts', '/v1.1/payouts'],
    ].flatMap(([one, other]): [string, string[]][] => {
      const two = (...resources: string[]): string => {
        const routes = resources.map((resource, index) => ({
          path: [one, other][index],
          upstream: 'payouts',
          resource,
        }));
        return `routes: ${JSON.stringify(routes)}`;
      };
      const problem = 'routes[1].path: equals the path of routes[0] except for letter case or a suffix such as .json';
      return [
        [two('a', 'b'), [problem]],
        [two('a', 'a'), []],
      ];
    }),
    [
      'routes: [{ path: /.well-known, upstream: payouts, resource: a }, { path: /.other, upstream: payouts, resource: b }]',
      [],
    ],
    ['identity: { audience: merchant-gateway }', []],
    ['identity: { audience: payouts }', ['identity.audience: is the name of an upstream']],
    ['listen: { http: { port: 9090 } }', ['listen.management.port: is already the port of listen.http']],
    [
      'listen: { http: { port: 9090, host: 127.0.0.1 } }',
      ['listen.management.port: is already the port of listen.http'],
    ],
    ['listen: { http: { port: 9090, host: "::" } }', ['listen.management.port: is already the port of listen.http']],
    ['listen: { http: { port: 9090, host: 127.0.0.2 } }', []],
    ['listen: { http: { port: 9090, host: "::1" } }', []],
    ['listen: { http: { port: 9090 }, management: { host: "::1" } }', []],
    ['listen: { http: { port: 0 }, management: { port: 0, host: 0.0.0.0 } }', []],
    ['listen: { http: { port: 9090 }, management: null }', []],
    [`listen: { ${tls}, http: { port: 8443 } }`, ['listen.http.port: is already the port of listen.https']],
    [
      'registry: { listen: { port: 7443 }, console: {} }',
      ['registry.console.listen.port: is already the port of registry.listen; expected another port'],
    ],
    ['registry: { listen: { port: 7443, host: "::1" }, console: {} }', []],
    ['registry: { listen: { port: 7443 } }', []],
    [
      'services: { listen: { port: 7081, host: 0.0.0.0 }, operators: { tokenFile: t } }',
      ['services.operators.listen.port: is already the port of services.listen; expected another port'],
    ],
    ['services: { listen: { port: 7081 } }', []],
    ['listen: { http: { port: 9443 } }\nregistry: { listen: { port: 9443 } }', []],
    [
      'limits: { headersTimeoutSeconds: 31 }',
      ['limits.headersTimeoutSeconds: expected at most limits.requestTimeoutSeconds, which is 30'],
    ],
    [
      'listen: { https: { certFile: a, keyFile: b, http2: true } }',
      ['listen.https.http2: is no longer supported; expected false. The HTTP/2 server of Node drops header fields'],
    ],
    ['listen: { https: { certFile: a, keyFile: b, http2: false } }', []],
    ['proxyProtocol: true', ['proxyProtocol: would close every connection']],
    ['proxyProtocol: true\ntrustedProxies: [10.0.0.0/8]', []],
    [
      'listen: { https: { certFile: a, keyFile: b, clientCertificates: require } }',
      ['listen.https.clientCaFile: expected a file, because listen.https.clientCertificates is require'],
    ],
    ['listen: { https: { certFile: a, keyFile: b, clientCaFile: c } }', ['listen.https.clientCaFile: has no effect']],
    ['listen: { https: { certFile: a, keyFile: b, clientCaFile: c, clientCertificates: request } }', []],
    [
      'upstreams: { a: { url: "http://a", caFile: x } }\nroutes: []',
      ['upstreams.a.caFile: applies only to an https://'],
    ],
    ['upstreams: { a: { url: "https://a", caFile: x } }\nroutes: []', []],
    ...['stderr', 'STDOUT', 'Stdout', '" stdout"'].map((destination): [string, string[]] => [
      `accessLog: { destination: ${destination} }`,
      [
        'accessLog.destination: expected stdout (in lower case, without spaces) or the path of a file; stderr is not supported',
      ],
    ]),
    ...['stdout', './stderr', '/dev/stderr', 'stdout.log'].map((destination): [string, string[]] => [
      `accessLog: { destination: ${destination} }`,
      [],
    ]),
    [`accessLog: { checkpoints: { keyFile: k, file: f, name: ${'a'.repeat(173)} } }`, []],
    [
      `accessLog: { checkpoints: { keyFile: k, file: f, name: ${'a'.repeat(174)} } }`,
      [
        'accessLog.checkpoints.name: expected at most 173 letters, digits and . _ : / -, beginning with a letter or digit, such as gateway.example.com/live',
      ],
    ],
    [
      'accessLog: { checkpoints: { keyFile: k } }',
      ['accessLog.checkpoints: have no destination; expected at least one of file, https, syslog and witness'],
    ],
    [
      'accessLog: { destination: x, checkpoints: { keyFile: k, file: x } }',
      ['accessLog.checkpoints.file: expected a file other than the log itself'],
    ],
    ['accessLog: { checkpoints: { keyFile: k, https: { url: "https://a.example/b" } } }', []],
    [
      'accessLog: { checkpoints: { keyFile: k, https: { url: "https://a:b:c/" } } }',
      ['accessLog.checkpoints.https.url: expected a URL such as https://archive.example/checkpoints'],
    ],
    ...['tls://logs.example', 'tls://10.0.0.1:6515', 'tcp://127.0.0.1:601', 'tcp://[::1]', 'tcp://localhost'].map(
      (url): [string, string[]] => [`accessLog: { checkpoints: { keyFile: k, syslog: { url: "${url}" } } }`, []],
    ),
    [
      'accessLog: { checkpoints: { keyFile: k, syslog: { url: "tls://a:b" } } }',
      ['accessLog.checkpoints.syslog.url: expected a URL such as tls://logs.example:6514'],
    ],
    ...['tcp://logs.example', 'tcp://10.0.0.1:601', 'tcp://127.0.0.1.example'].map((url): [string, string[]] => [
      `accessLog: { checkpoints: { keyFile: k, syslog: { url: "${url}" } } }`,
      ['accessLog.checkpoints.syslog.url: is the URL of another machine, which requires TLS; expected a tls:// URL'],
    ]),
    [
      'accessLog: { checkpoints: { keyFile: k, syslog: { url: "tcp://localhost", caFile: c } } }',
      ['accessLog.checkpoints.syslog.caFile: applies only to tls://; expected null'],
    ],
    [`accessLog: { checkpoints: { keyFile: k, witness: { publicKey: "${keyText(receiptKey)}" } } }`, []],
    ...['control.example', keyText(instanceKey), `${keyText(receiptKey)} `].map((key): [string, string[]] => [
      `accessLog: { checkpoints: { keyFile: k, witness: { publicKey: "${key}" } } }`,
      [
        'accessLog.checkpoints.witness.publicKey: is not a public key for receipts; copy the key that "merchant-gateway',
      ],
    ]),
    ['keyStore: { redis: { sentinel: { servers: [] } } }', ['keyStore.redis.sentinel.servers: expected at least one']],
    ['keyStore: { redis: { sentinel: { servers: ["a:1", "[::1]:2"] } } }', []],
    ['keyStore: { redis: { url: "rediss://redis.example:6380/3" } }', []],
    ['keyStore: { redis: { url: "rediss://any", cluster: ["a:1", "[::1]:2"] } }', []],
    ['keyStore: { redis: { cluster: [] } }', ['keyStore.redis.cluster: expected at least one node']],
    [
      'keyStore: { redis: { cluster: ["a:1"], sentinel: { servers: ["b:2"] } } }',
      ['keyStore.redis.cluster: cannot be combined with keyStore.redis.sentinel'],
    ],
    [
      'keyStore: { redis: { cluster: ["a:1"], url: "redis://a/1" } }',
      ['keyStore.redis.url: selects a database, but a Redis Cluster has only database 0'],
    ],
    [
      'keyStore: { redis: { cluster: ["a:1"], prefix: "{mg}:" } }',
      ['keyStore.redis.prefix: contains braces, which would put every record into one slot'],
    ],
    ['keyStore: { redis: { prefix: "{mg}:" } }', []],
    ['keyStore: { redis: { url: "redis://redis.example/name" } }', ['keyStore.redis.url: expected redis://']],
    ...['?db=7', '/?db=7', '/7?db=7', '#7', '/7#', '?'].map((end): [string, string[]] => [
      `keyStore: { redis: { url: "redis://redis.example:6379${end}" } }`,
      ['keyStore.redis.url: contains ? or #; select a database by its number only, as in redis://host:6379/7'],
    ]),
    ...['', ', sentinel: { servers: ["a:1"] }', ', cluster: ["a:1"]'].flatMap((others): [string, string[]][] => [
      [
        `keyStore: { redis: { caFile: ca.pem, url: "redis://any"${others} } }`,
        [
          'keyStore.redis.caFile: has no effect without TLS; expected null, or a rediss:// URL in keyStore.redis.url (also with sentinel or cluster)',
        ],
      ],
      [`keyStore: { redis: { caFile: ca.pem, url: "rediss://any"${others} } }`, []],
    ]),
    ['rateLimit: { requestsPerSecond: 1, shared: true }', []],
    [
      'rateLimit: { shared: true }',
      ['rateLimit.shared: has no effect without rateLimit.requestsPerSecond; expected false, or a number'],
    ],
    [
      'rateLimit: { requestsPerSecond: 1, shared: true }\nkeyStore: { kind: memory }',
      ['rateLimit.shared: requires Redis, but keyStore.kind is memory; expected false, or keyStore.kind: redis'],
    ],
    ['rateLimit: { requestsPerSecond: 1 }\nkeyStore: { kind: memory }', []],
    ['keyStore: { redis: { url: "redis://a:99999" } }', ['keyStore.redis.url: expected redis://']],
  ];
  for (const [text, expected] of cases) {
    const problems = problemsOf({ text }).map((line) => line.replace(/^line \d+: /, ''));
    t.equal(problems.length, expected.length, text);
    for (const [index, start] of expected.entries()) t.ok(problems[index]?.startsWith(start), start);
  }
  t.end();
});

t.test('a trusted proxy is an address, or a network too small to contain every client', (t) => {
  const good = ['10.0.0.0/8', '192.0.2.1', '172.16.0.0/12', '2001:db8::1', 'fc00::/7', '::1', '::ffff:10.0.0.0/104'];
  const everyone = [
    '0.0.0.0/0',
    '::/0',
    '0.0.0.0/1',
    '128.0.0.0/1',
    '2000::/3',
    '2000::/7',
    '::/7',
    'fc::/8',
    '::ffff:0:0/96',
    '::ffff:0.0.0.0/97',
  ];
  const garbage = ['10.0.0.0/33', '010.0.0.1', '1.2.3', 'proxy.test', 'loopback', '1', '10.0.0.0/8 ', 'fe80::1%eth0'];
  const text = (entries: readonly string[]) => JSON.stringify({ trustedProxies: entries });
  t.same(problemsOf({ text: text(good) }), []);
  for (const entry of everyone) {
    t.match(
      problemsOf({ text: text(['10.0.0.1', entry]) }),
      [/^line 1: trustedProxies\[1\]: is so wide that it includes clients, which/],
      entry,
    );
  }
  t.same(
    problemsOf({ text: text([...garbage, ...good]) }),
    garbage.map((_, index) => `line 1: trustedProxies[${index}]: expected an IP address or CIDR, such as 10.0.0.0/8`),
    'each invalid entry is reported',
  );
  t.end();
});

t.test('claims can give each role of people', (t) => {
  for (const role of roleNames) {
    const entry = `{ claim: c, value: d, roles: [${role}] }`;
    const oidc = `{ issuer: "https://id.example", clientId: a, clientSecretFile: b, merchant: { claim: e }, roles: [${entry}] }`;
    const problems = problemsOf({ text: `registry: { oidc: ${oidc} }` });
    if (role === 'services') t.match(problems, [/registry\.oidc\.roles\[0\]\.roles\[0\]: /]);
    else t.same(problems, [], role);
  }
  t.end();
});

t.test('a reason can be required for permissions that exist, and unknown ones are reported with their place', (t) => {
  const problems = (names: readonly string[]) => problemsOf({ text: `registry: { reasonFor: [${names.join(', ')}] }` });
  t.same(problems(roles.owner.permissions), []);
  t.match(problems(['keys:revoke', 'key:revoke', 'keys:revok']), [
    /registry\.reasonFor\[1\]: expected a permission that "merchant-gateway roles" prints/,
    /registry\.reasonFor\[2\]: expected a permission/,
  ]);
  t.end();
});

t.test('claims that make owners are refused while owners need approval', (t) => {
  const oidc =
    'oidc: { issuer: "https://id.example", clientId: a, clientSecretFile: b, roles: [{ claim: c, value: d, roles: [owner] }] }';
  const problems = (approvals: string) => problemsOf({ text: `registry: { approvals: ${approvals}, ${oidc} }` });
  t.match(problems('{}'), [
    /registry\.oidc\.roles\[0\]\.roles: gives the role owner without the approval that registry\.approvals\.owners requires/,
  ]);
  t.same(problems('{ owners: false }'), []);
  t.same(problems('null'), []);
  t.end();
});

t.test('rules do not apply to the placeholder for an invalid value', (t) => {
  const cases: readonly [string, readonly string[]][] = [
    [
      'routes: [{ path: a, upstream: payouts, resource: a }, { path: /payouts, upstream: payouts, resource: b }]',
      ['routes[0].path'],
    ],
    ['upstreams: 5', ['upstreams']],
    ['upstreams: { a: { url: ftp://a, caFile: x } }\nroutes: []', ['upstreams.a.url']],
    ['listen: { http: { port: x }, management: { port: 8080 } }', ['listen.http.port']],
    ['limits: { requestTimeoutSeconds: x, headersTimeoutSeconds: 40 }', ['limits.requestTimeoutSeconds']],
    ['trustedProxies: 5', ['trustedProxies']],
    ['keyStore: { redis: { caFile: ca.pem, url: 5 } }', ['keyStore.redis.url']],
    ['keyStore: { redis: { cluster: ["a:1"], sentinel: 5 } }', ['keyStore.redis.sentinel']],
    ['keyStore: { redis: { cluster: 5, url: "redis://a/1", prefix: "{mg}:" } }', ['keyStore.redis.cluster']],
  ];
  for (const [text, expected] of cases) {
    t.same(
      problemsOf({ text }).map((line) => line.split(': ')[1]),
      expected,
      text,
    );
  }
  t.end();
});

t.test('the gateway reports what would make it reject every request', (t) => {
  const ready = 'keyStore: { kind: memory, memory: { recordsFile: r.json } }\ntorExits: { enabled: false }\n';
  const cases: readonly [string, readonly string[]][] = [
    ['', ['listen.https']],
    ['torExits: { sources: [] }', ['listen.https', 'torExits.sources']],
    ['torExits: { sources: [] }\ngeoip: { anonymousIpFile: a.mmdb }', ['listen.https']],
    ['keyStore: { kind: memory }', ['listen.https', 'keyStore.memory.recordsFile']],
    [`${ready}listen: { ${tls} }`, []],
    [`${ready}listen: { ${tls}, http: null }`, []],
    [`${ready}trustedProxies: [10.0.0.0/8]`, []],
    [`${ready}trustedProxies: [10.0.0.0/8]\nlisten: { http: null }`, ['listen']],
    [`keyStore: { kind: redis }\ntorExits: { sources: [x] }\nlisten: { ${tls} }`, []],
  ];
  for (const [text, expected] of cases) {
    t.same(
      gatewayProblems(loadConfig({ text })).map(({ path }) => path),
      expected,
      text,
    );
  }
  t.end();
});

t.test('a source of Tor exits is a file, or an http or https URL without a password', (t) => {
  const wrong: readonly [string, RegExp][] = [
    ['ftp://a.test/list', /torExits\.sources\[1\]: expected an http or https URL or the path of a file/],
    ['file:///etc/exits', /torExits\.sources\[1\]: expected an http or https URL/],
    ['htps://a.test/list', /torExits\.sources\[1\]: expected an http or https URL/],
    ['https://', /torExits\.sources\[1\]: expected an http or https URL/],
    ['https://a.test:99999/', /torExits\.sources\[1\]: expected an http or https URL/],
    ['https://user:s3cret@a.test/', /torExits\.sources\[1\]: expected a URL without user and password/],
    ['https://user@a.test/', /torExits\.sources\[1\]: expected a URL without user and/],
  ];
  for (const [source, problem] of wrong) {
    const problems = problemsOf({ text: JSON.stringify({ torExits: { sources: ['exits.txt', source] } }) });
    t.match(problems, [problem], source);
    t.notMatch(problems.join(), /s3cret/);
  }
  const sources = ['https://a.test/list?x=1', 'HTTP://a.test', 'exits.txt', '/var/exits', './a:b', 'http.txt'];
  t.same(problemsOf({ text: JSON.stringify({ torExits: { sources } }) }), []);
  t.end();
});

t.test('a registry beyond loopback does not start without TLS, unless its proxies are named', (t) => {
  const problemsWith = (text: string): readonly string[] =>
    startProblems('registry', loadConfig({ text: `registry: { tokenFile: t, ${text} }` })).map(
      ({ path, message }) => `${path}: ${message}`,
    );
  for (const host of ['0.0.0.0', '"::"', '10.0.0.7', 'registry.example']) {
    t.match(problemsWith(`listen: { host: ${host} }`), [
      /^registry\.listen\.host: is not a loopback address, .*certFile and keyFile, .*registry\.behindProxy with the addresses of a proxy that terminates TLS$/,
    ]);
    t.same(problemsWith(`listen: { host: ${host}, certFile: a, keyFile: b }`), []);
    t.same(problemsWith(`listen: { host: ${host} }, behindProxy: [10.0.0.9]`), []);
    const origin = 'https://console.example.com';
    t.match(problemsWith(`console: { origin: "${origin}", listen: { host: ${host} } }`), [
      /^registry\.console\.listen\.host: is not a loopback address, so the console requires TLS; .*behindProxy with the addresses of a proxy that terminates TLS$/,
    ]);
    t.same(problemsWith(`console: { origin: "${origin}", listen: { host: ${host}, certFile: a, keyFile: b } }`), []);
  }
  for (const host of ['127.0.0.1', '"::1"', 'localhost']) t.same(problemsWith(`listen: { host: ${host} }`), []);
  t.same(startProblems('services', loadConfig({ text: 'registry: { listen: { host: 0.0.0.0 } }' })), []);
  t.end();
});
