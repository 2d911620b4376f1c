import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import t from 'tap';
import { parse } from 'yaml';
import { configCommand } from '../../src/cli/config.js';
import { ConfigError } from '../../src/config/config-error.js';
import { documentConfig } from '../../src/config/document.js';
import { loadConfig } from '../../src/config/load.js';
import { redact } from '../../src/config/redact.js';
import { configSchema } from '../../src/config/schema.js';
import { nonNull } from '../../src/config/schema/option.js';
import type { Option } from '../../src/config/schema/option.js';
import { problemsOf } from './problems-of.js';

const file = resolve('config/gateway.yaml');
const text = documentConfig();

function run(args: readonly string[], env: Record<string, string> = {}): { out: string; err: string } {
  const written = { out: '', err: '' };
  const io = {
    out: (part: string) => void (written.out += part),
    err: (part: string) => void (written.err += part),
  };
  configCommand(io, env).parse(args, { from: 'user' });
  return written;
}

t.test('config/gateway.yaml is up to date (merchant-gateway config defaults > config/gateway.yaml)', (t) => {
  t.equal(readFileSync(file, 'utf8'), text);
  t.equal(run(['defaults']).out, text);
  t.end();
});

t.test('the documented default loads to exactly the defaults, whatever the environment', (t) => {
  t.strictSame(loadConfig({ text: readFileSync(file, 'utf8'), env: {} }), loadConfig());
  t.end();
});

t.test('the commented-out options of the documented default are valid', (t) => {
  const uncommented = text.replaceAll(/^( *)# ( *(?:- )?[a-zA-Z0-9]+:(?: (?:\S+|\[.*\]))?)$/gm, '$1$2');
  t.not(uncommented, text);
  t.strictSame(loadConfig({ text: uncommented }).listen.https, {
    host: '0.0.0.0',
    port: 8443,
    certFile: '/etc/merchant-gateway/tls/tls.crt',
    keyFile: '/etc/merchant-gateway/tls/tls.key',
    certificates: [{ certFile: resolve('other.crt'), keyFile: resolve('other.key') }],
    reloadSeconds: 10,
    minVersion: 'TLSv1.2',
    http2: false,
    strictTransportSecuritySeconds: 31_536_000,
    ticketKeysFile: null,
    clientCertificates: 'none',
    clientCaFile: null,
  });
  t.end();
});

t.test('the documented default contains each option once, after a comment', (t) => {
  const lines = text.split('\n');
  // A nullable option is commented out, as are the options inside it.
  const plain = lines.map((line) => line.replace(/^( *)# /, '$1').replace(/^( *)# /, '$1'));
  const expect = (option: Option, names: readonly string[]): void => {
    for (const [name, child] of Object.entries(nonNull(option).properties ?? {})) {
      const path = [...names, name];
      const indent = '  '.repeat(names.length);
      const at = plain.findIndex((line) => line.startsWith(`${indent}${name}:`));
      t.not(at, -1, path.join('.'));
      t.match(lines[at - 1], /^ *#/, path.join('.'));
      expect(child, path);
    }
  };
  expect(configSchema, []);
  t.notOk(lines.some((line) => line.length > 100 && line.trimStart().startsWith('#')));
  t.end();
});

t.test('config check prints the effective configuration, which can be loaded again', (t) => {
  const given = 'basePath: ${BASE:-/v3}\nlog: { level: warn }\naccessLog: { destination: "a$${b}" }\n';
  const directory = t.testdir({ 'g.yaml': given });
  const config = loadConfig({ file: join(directory, 'g.yaml') });
  t.equal(config.accessLog.destination, join(directory, 'a${b}'));
  const yaml = run(['check', '--config', join(directory, 'g.yaml')]);
  t.strictSame(loadConfig({ text: yaml.out }), config);
  const json = run(['check', '--json', '--config', join(directory, 'g.yaml')], { BASE: '/v4' });
  const { memoryPlan, ...shown } = JSON.parse(json.out) as Record<string, unknown>;
  t.strictSame(shown, { ...config, basePath: '/v4' });
  t.ok(memoryPlan);
  t.strictSame(parse(run(['check']).out), loadConfig());
  t.end();
});

t.test('config check also reports what would prevent the gateway from starting', (t) => {
  t.match(run(['check']).err, /the gateway command would not start with it:\n(?:.*\n)*.*listen\.https: /);
  const ready = `listen: { https: { certFile: a, keyFile: b } }
keyStore: { kind: memory, memory: { recordsFile: r.json } }
torExits: { enabled: false }
registry: { tokenFile: t }
`;
  const directory = t.testdir({ 'g.yaml': ready });
  t.equal(run(['check', '--config', join(directory, 'g.yaml')]).err, '');
  t.end();
});

t.test('config check --for fails if that command would not start, and ignores other commands', (t) => {
  const directory = t.testdir({
    'gateway.yaml':
      'trustedProxies: [10.0.0.1]\nlisten: { http: { port: 8080 } }\ntorExits: { enabled: false }\n' +
      'keyStore: { redis: { replicas: 0 } }\n',
    'registry.yaml': 'registry: { tokenFile: token }\nkeyStore: { redis: { replicas: 0 } }\n',
  });
  const check = (file: string, command: string): string =>
    run(['check', '--config', join(directory, file), '--for', command]).err;
  t.match(check('gateway.yaml', 'gateway'), /^Note:\n {2}keyStore\.cache\.maxEntries: .*\n$/, 'only a note');
  t.equal(check('registry.yaml', 'registry'), '', 'options that only the gateway needs are not reported');
  t.equal(check('gateway.yaml', 'services'), '');
  t.match(
    t.throws(() => check('gateway.yaml', 'registry'), ConfigError),
    { problems: [{ path: 'registry.tokenFile' }] },
  );
  t.match(
    t.throws(() => check('registry.yaml', 'gateway'), ConfigError),
    { problems: [{ path: 'listen.https' }] },
  );
  t.end();
});

t.test('config check notes if a gateway that is cut off with a former master would go undetected', (t) => {
  const directory = t.testdir({ 'g.yaml': '' });
  const ready = 'registry: { tokenFile: token }\n';
  const check = (redis: string, command = 'registry'): string => {
    writeFileSync(join(directory, 'g.yaml'), `${ready}keyStore: { ${redis} }\n`);
    return run(['check', '--config', join(directory, 'g.yaml'), '--for', command]).err;
  };
  const note =
    /^Note:\n {2}keyStore\.redis\.replicas: is not set\. If keyStore\.redis\.url is the host name .* or 0 if there are no replicas\n$/;
  t.match(check(''), note);
  t.match(check('redis: { url: "rediss://pair.example" }'), note);
  t.match(run(['check']).err, /would not start with it:\n(?: {2}.*\n)+Note:\n {2}keyStore\.redis\.replicas: /);
  t.equal(check('redis: { replicas: 1 }'), '');
  t.equal(check('redis: { replicas: 0 }'), '');
  t.equal(check('redis: { sentinel: { servers: ["s:26379"] } }'), '');
  t.equal(check('redis: { cluster: ["r:6379"] }'), '');
  t.equal(check('kind: memory, memory: { recordsFile: r.json }'), '');
  t.equal(check('', 'services'), '');
  t.end();
});

t.test('config check prints the memory needed for cached records', (t) => {
  const directory = t.testdir({ 'g.yaml': '' });
  const check = (cache: string, kind = 'redis'): string => {
    const store = `keyStore: { kind: ${kind}, memory: { recordsFile: r.json }, redis: { replicas: 0 }, cache: { ${cache} } }\n`;
    writeFileSync(join(directory, 'g.yaml'), `listen: { https: { certFile: a, keyFile: b } }\n${store}`);
    return run(['check', '--config', join(directory, 'g.yaml'), '--for', 'gateway']).err;
  };
  t.match(
    check(''),
    / is 100000\. That many cached keys take about 66 MiB of memory in each .* 93 MiB\. A gateway reads all records of its environment into this cache when it starts/,
  );
  t.match(
    check('maxEntries: 1000000, preload: false'),
    / is 1000000\. That many cached keys take about 659 MiB .* A gateway reads a record into this cache at its first lookup\n$/,
  );
  t.equal(check('', 'memory'), '');
  t.end();
});

t.test('config check throws every problem of an invalid file and prints nothing', (t) => {
  const directory = t.testdir({ 'g.yaml': 'a: 1\nproxyProtocol: 2\n' });
  const error = t.throws(() => run(['check', '--config', join(directory, 'g.yaml')]), ConfigError) as ConfigError;
  t.equal(error.problems.length, 2);
  t.equal(error.file, join(directory, 'g.yaml'));
  t.same(problemsOf({ file: join(directory, 'g.yaml') }).length, 2);
  t.end();
});

t.test('parts of a URL that may be secret are masked', (t) => {
  const cases: readonly [string, string][] = [
    ['redis://user:pass@host:6379/0', 'redis://***@host:6379/0'],
    ['redis://:pa@ss/word@host', 'redis://***@host'],
    ['postgres://host/db?user=a&password=b&sslmode', 'postgres://host/db?user=***&password=***&sslmode'],
    ['sqlite:var/a.db?key=b', 'sqlite:var/a.db?key=***'],
    ['http://127.0.0.1:7080', 'http://127.0.0.1:7080'],
    ['var/tor-exits.json', 'var/tor-exits.json'],
    ['/a?b=c@d', '/a?b=c@d'],
  ];
  for (const [given, masked] of cases) t.equal(redact(given), masked);
  const directory = t.testdir({ 'g.yaml': 'services: { database: { url: "sqlite:a.db?key=hunter2" } }' });
  t.notMatch(run(['check', '--config', join(directory, 'g.yaml')]).out, /hunter2/);
  t.end();
});
