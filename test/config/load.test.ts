import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { stringify } from 'yaml';
import { ConfigError, formatProblems } from '../../src/config/config-error.js';
import { loadConfig } from '../../src/config/load.js';
import { problemsOf } from './problems-of.js';

const defaults = loadConfig();

t.test('an empty file means the defaults', (t) => {
  for (const text of [
    '',
    '\n',
    '# only a comment\n',
    '---\n',
    'null\n',
    '\uFEFF',
    '{}',
    'keys:\n  # pepperFile: x\n',
  ]) {
    t.same(loadConfig({ text }), defaults, JSON.stringify(text));
  }
  t.end();
});

t.test('a group that can be null must not be left empty, because its options may be commented out', (t) => {
  const sentence = 'is empty; expected its options, {} for the defaults, or null';
  for (const [text, line, path] of [
    ['registry:\n  approvals:\n', 2, 'registry.approvals'],
    ['registry:\n  approvals:\n    # goLive: true\n', 2, 'registry.approvals'],
    ['registry: { approvals: }', 1, 'registry.approvals'],
    ['registry: { approvals }', 1, 'registry.approvals'],
    ['listen:\n  management:\n', 2, 'listen.management'],
    ['services:\n  operators:\n    trail:\n', 3, 'services.operators.trail'],
  ] as const) {
    t.same(problemsOf({ text }), [`line ${line}: ${path}: ${sentence}`], text);
  }
  for (const written of ['null', '~', '${APPROVALS:-null}'])
    t.equal(loadConfig({ text: `registry:\n  approvals: ${written}\n` }).registry.approvals, null, written);
  t.not(loadConfig({ text: 'registry:\n  approvals: {}\n' }).registry.approvals, null);
  t.same(problemsOf({ text: 'keys:\n  pepperFile:\nregistry:\n  oidc: null\n  database:\n' }), [], 'other options');
  t.end();
});

t.test('the defaults are those of the contract, as far as this version has the options', (t) => {
  t.equal(defaults.environment, 'live');
  t.equal(defaults.listen.https, null);
  t.same(defaults.listen.http, { host: '0.0.0.0', port: 8080 });
  t.same(defaults.listen.management, { host: '127.0.0.1', port: 9090 });
  t.same(defaults.trustedProxies, []);
  t.equal(defaults.keyStore.kind, 'redis');
  t.same(defaults.upstreams.payouts, {
    url: 'http://127.0.0.1:7080',
    timeoutSeconds: 30,
    maxInFlight: 256,
    boundIdle: 1024,
    readsBodies: false,
    caFile: null,
  });
  t.same(defaults.routes[3], { path: '/dev/wallets', upstream: 'payouts', resource: 'wallets' });
  t.end();
});

t.test('options omitted from a group or entry get their defaults', (t) => {
  const config = loadConfig({
    text: `
listen:
  https: { certFile: /a.crt, keyFile: /a.key }
  http: null
  management: { port: 9999 }
upstreams:
  one: { url: "https://one.test:8443", caFile: /ca.pem }
routes:
  - { path: /one, upstream: one, resource: payouts }
`,
  });
  t.match(config.listen, {
    https: { host: '0.0.0.0', port: 8443, certFile: '/a.crt', keyFile: '/a.key', http2: false },
    http: null,
    management: { host: '127.0.0.1', port: 9999 },
  });
  t.same(
    config.upstreams,
    {
      one: {
        ...{ url: 'https://one.test:8443', timeoutSeconds: 30, maxInFlight: 256, caFile: '/ca.pem' },
        ...{ boundIdle: 1024, readsBodies: false },
      },
    },
    'the given upstreams replace the default ones',
  );
  t.equal(config.routes.length, 1, 'the given routes replace the default ones');
  t.end();
});

t.test('the file overrides presets: groups are merged, other values are replaced', (t) => {
  const presets = {
    listen: { https: { certFile: '/dev.crt', keyFile: '/dev.key' }, http: { port: 1 }, management: null },
    trustedProxies: ['10.0.0.0/8', '192.0.2.1'],
    keyStore: { memory: { recordsFile: '/dev.json' } },
    log: { level: 'debug' },
  } as const;
  const before = JSON.stringify(presets);
  const text = 'listen:\n  https: { port: 4 }\n  http: null\ntrustedProxies: [172.16.0.0/12]\nkeyStore:\n';
  const config = loadConfig({ text, presets });
  t.match(config.listen.https, { host: '0.0.0.0', port: 4, certFile: '/dev.crt', keyFile: '/dev.key', http2: false });
  t.equal(config.listen.http, null);
  t.equal(config.listen.management, null);
  t.same(config.trustedProxies, ['172.16.0.0/12']);
  t.equal(config.keyStore.memory.recordsFile, '/dev.json', 'an empty group in the file removes nothing');
  t.equal(config.log.level, 'debug');
  t.equal(JSON.stringify(presets), before, 'the presets are unchanged');
  t.notOk(Object.isFrozen(presets.listen), 'the presets are not frozen');
  t.end();
});

t.test('a configuration is deeply frozen, and the defaults cannot be changed through it', (t) => {
  const { routes, upstreams, listen } = loadConfig();
  for (const part of [routes, routes[0], upstreams, upstreams.payouts, listen.http]) t.ok(Object.isFrozen(part));
  t.not(loadConfig().routes, routes);
  t.end();
});

t.test('variables are read from the given environment', (t) => {
  const text = 'basePath: ${BASE}\nlisten:\n  http:\n    port: ${PORT:-8081}\nkeys:\n  pepperFile: ${PEPPER:-}\n';
  const config = loadConfig({ text, env: { BASE: '/v2' } });
  t.equal(config.basePath, '/v2');
  t.equal(config.listen.http?.port, 8081);
  t.equal(config.keys.pepperFile, null);
  t.end();
});

t.test('a problem of an entry in a list is reported with the line of the entry', (t) => {
  const text = `registry:
  unusual:
    webhooks:
      - { url: https://hooks.example/a, secretFile: a }
      - { url: http://hooks.example/b, secretFile: b }
      - url: https://hooks.example/a
        secretFile: c
      - { url: 'https://[', secretFile: d }
`;
  t.same(problemsOf({ text }), [
    'line 5: registry.unusual.webhooks[1].url: expected https, because http is accepted only for loopback addresses',
    'line 6: registry.unusual.webhooks[2].url: is already the URL of registry.unusual.webhooks[0]; expected another URL',
    'line 8: registry.unusual.webhooks[3].url: is not a URL; expected an https URL',
  ]);
  t.end();
});

t.test('all problems are reported together with path and line, in file order', (t) => {
  const text = `environment: prod
listen:
  https:
    cert_file: tls.crt
    keyFile: tls.key
  http: { port: 9090 }
  management: { host: 0.0.0.0 }
limits: { headerBytes: 1, headersTimeoutSeconds: 60 }
routes:
  - path: /a/
    upstream: transactions
    resource: a
  - { path: /b, upstream: nowhere, resource: b }
basePath: \${BASE}
environment: live
`;
  t.same(problemsOf({ text, env: {} }), [
    'line 1: environment: expected live or test',
    'line 3: listen.https.certFile: is required; expected the path of a file',
    'line 4: listen.https.cert_file: is not an option; did you mean certFile?',
    'line 7: listen.management.port: is already the port of listen.http; expected another port',
    'line 8: limits.headerBytes: expected a whole number from 1024 to 1048576',
    'line 8: limits.headersTimeoutSeconds: expected at most limits.requestTimeoutSeconds, which is 30',
    'line 10: routes[0].path: expected a path like /payouts, without a trailing slash, whose segments have only letters, digits and . _ ~ -',
    'line 13: routes[1].upstream: is not the name of an upstream; expected transactions, payouts, customers',
    'line 14: basePath: the environment variable BASE is not set; set it, or write a default: ${BASE:-default}',
    'line 15: environment: is given twice; keep one',
  ]);
  t.end();
});

t.test('a file that cannot be read as text is a problem that names the file', (t) => {
  const directory = t.testdir({ 'empty.yaml': '', 'good.yaml': 'log: { level: warn }\n' });
  mkdirSync(join(directory, 'sub'));
  writeFileSync(join(directory, 'latin1.yaml'), Buffer.from([0x61, 0x3a, 0x20, 0xe4]));
  writeFileSync(join(directory, 'utf16.yaml'), Buffer.from('\uFEFFlog: null', 'utf16le'));
  writeFileSync(join(directory, 'large.yaml'), `#${'x'.repeat(1_048_576)}`);
  const cases: readonly [string, RegExp][] = [
    ['missing.yaml', /no such file/],
    ['empty.yaml/x', /no such file/],
    ['sub', /is a directory/],
    ['latin1.yaml', /is not UTF-8/],
    ['utf16.yaml', /is not UTF-8/],
    ['large.yaml', /is larger than 1048576 bytes/],
  ];
  for (const [name, expected] of cases) {
    const file = join(directory, name);
    const error = t.throws(() => loadConfig({ file }), ConfigError, name) as ConfigError;
    const [first, ...others] = formatProblems(error).split('\n');
    t.equal(first, `${file} is not valid (1 problem):`);
    t.match(others.join('\n'), expected);
  }
  t.throws(() => loadConfig({ text: '#'.repeat(1_048_577) }), /is larger than/);
  t.same(
    loadConfig({ file: join(directory, 'empty.yaml') }),
    loadConfig({ text: '', file: join(directory, 'x.yaml') }),
  );
  t.equal(loadConfig({ file: join(directory, 'good.yaml') }).log.level, 'warn');
  t.end();
});

t.test('files named in a configuration are not opened', (t) => {
  const text = 'listen: { https: { certFile: /nowhere/a, keyFile: /nowhere/b } }\nkeys: { pepperFile: /nowhere/c }';
  t.doesNotThrow(() => loadConfig({ text }));
  t.end();
});

t.test('for any text, loading throws only ConfigError', (t) => {
  const names = ['listen', 'https', 'port', 'routes', 'upstreams', 'torExits', 'sources', '__proto__', 'limits', 'url'];
  const tree = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 5 },
      fc.constantFrom<unknown>(null, true, 0, -1, 8080, 1e400, NaN, '', '/', '${X}', '${', '::/0', 'sqlite:', '\u202e'),
      fc.string(),
      fc.array(tie('value'), { maxLength: 4 }),
      fc.dictionary(fc.oneof(fc.constantFrom(...names), fc.string()), tie('value'), { maxKeys: 5 }),
    ),
  })).value;
  const syntax = fc
    .array(
      fc.constantFrom('a', ': ', '- ', '\n', '  ', '\t', '{', '}', '[', ']', ',', '&x ', '*x', '!t ', '? ', '"', "'"),
    )
    .map((parts) => parts.join(''));
  const texts = fc.oneof(
    fc.string({ unit: 'binary' }),
    syntax,
    tree.map((value) => stringify(value)),
    tree.map((value) => JSON.stringify(value)),
  );
  fc.assert(
    fc.property(texts, (text) => {
      try {
        loadConfig({ text, env: { X: 'x' } });
      } catch (error) {
        if (!(error instanceof ConfigError)) throw error;
        return error.problems.length > 0 && !/[\p{Cc}\u202e]/u.test(error.problems.map(({ path }) => path).join(''));
      }
      return true;
    }),
    { numRuns: 1500 },
  );
  t.end();
});
