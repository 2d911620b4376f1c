import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { loadConfig } from '../../src/config/load.js';
import { configSchema } from '../../src/config/schema.js';
import { nonNull } from '../../src/config/schema/option.js';
import type { Option } from '../../src/config/schema/option.js';
import { problemsOf } from './problems-of.js';

const text = `listen:
  https:
    certFile: tls/a.crt
    keyFile: /absolute/a.key
    certificates: [{ certFile: ./b.crt, keyFile: b.key }]
keyStore: { redis: { passwordFile: redis-password, sentinel: { servers: [s:1], passwordFile: ../s } } }
torExits: { sources: [exits.txt, "https://lists.example/exits"] }
upstreams: { one: { url: "https://one.example", caFile: ca.pem } }
routes: []
services: { database: { url: "postgres://u@h/d?sslmode=verify-full&sslrootcert=root%20ca.pem" } }
identity: { publishedKeyFiles: [next.pem] }
accessLog: { destination: log/access.log }
`;

/**
 * Returns the dotted names of all options whose value, according to `expects`, is the path of a file, but which do not
 * declare this with `holds`.
 */
function fileOptions(option: Option, at: string): string[] {
  const { properties, patternProperties, items, expects, holds } = nonNull(option);
  const children = { ...properties, ...patternProperties, ...(items && { '*': items }) };
  const namesFile = /(?:path|paths) of (?:a file|files)|sqlite:/.test(expects ?? '') && items === undefined;
  return [
    ...(namesFile && holds === undefined ? [at] : []),
    ...Object.entries(children).flatMap(([name, child]) => fileOptions(child, `${at}.${name}`)),
  ];
}

t.test('each option that is described as a file path is declared as one', (t) => {
  t.same(fileOptions(configSchema, ''), []);
  t.end();
});

t.test('relative paths, including defaults, are resolved from the directory of the file', (t) => {
  const directory = t.testdir({ 'gateway.yaml': text });
  const found = loadConfig({ file: path.join(directory, 'gateway.yaml') });
  const at = (name: string): string => path.join(directory, name);
  t.match(found, {
    listen: {
      https: { certFile: at('tls/a.crt'), keyFile: '/absolute/a.key', certificates: [{ certFile: at('b.crt') }] },
    },
    keyStore: {
      redis: { passwordFile: at('redis-password'), sentinel: { passwordFile: path.join(directory, '../s') } },
    },
    torExits: { sources: [at('exits.txt'), 'https://lists.example/exits'], snapshotFile: at('var/tor-exits.json') },
    upstreams: { one: { caFile: at('ca.pem') } },
    registry: { database: { url: `sqlite:${at('var/registry.db')}` } },
    services: {
      database: { url: `postgres://u@h/d?sslmode=verify-full&sslrootcert=${at('root ca.pem').replace(' ', '%20')}` },
    },
    identity: { publishedKeyFiles: [at('next.pem')] },
    accessLog: { destination: at('log/access.log') },
  });
  const here = process.cwd();
  t.teardown(() => {
    process.chdir(here);
  });
  process.chdir(path.dirname(directory));
  t.same(
    loadConfig({ file: path.join(path.basename(directory), 'gateway.yaml') }),
    found,
    'independently of the working directory',
  );
  t.equal(loadConfig({ text: 'accessLog: { destination: stdout }' }).accessLog.destination, 'stdout');
  t.equal(
    loadConfig().torExits.snapshotFile,
    path.resolve('var/tor-exits.json'),
    'without a file: from the working directory',
  );
  t.equal(
    loadConfig({ file: '/dev/null' }).torExits.snapshotFile,
    path.resolve('var/tor-exits.json'),
    'from a pipe: from the working directory',
  );
  t.end();
});

t.test('a file that earlier releases found in the working directory causes an error, not a new file', (t) => {
  const directory = t.testdir({ etc: {}, var: { 'registry.db': '', 'access.log': '', 'exits.txt': '' } });
  const file = path.join(directory, 'etc/gateway.yaml');
  const here = process.cwd();
  t.teardown(() => {
    process.chdir(here);
  });
  process.chdir(directory);
  writeFileSync(
    file,
    `registry: { database: { url: "sqlite:var/registry.db" } }
accessLog: { destination: var/access.log }
torExits: { sources: [var/exits.txt] }
`,
  );
  const problem = (line: number, option: string, name: string): string =>
    `line ${line}: ${option}: is relative to the folder of the configuration file, but ${directory}/etc/var/${name} does not exist. ` +
    `${directory}/var/${name} exists in the working directory: configure that path, or move the file`;
  t.same(problemsOf({ file }), [
    problem(1, 'registry.database.url', 'registry.db'),
    problem(2, 'accessLog.destination', 'access.log'),
    problem(3, 'torExits.sources[0]', 'exits.txt'),
  ]);
  mkdirSync(path.join(directory, 'etc/var'));
  for (const name of ['registry.db', 'access.log', 'exits.txt']) writeFileSync(`etc/var/${name}`, '');
  t.same(problemsOf({ file }), [], 'a file next to the configuration is used');
  writeFileSync(file, '');
  t.same(problemsOf({ file }), [], 'for a default path the intention is unknown');
  t.end();
});
