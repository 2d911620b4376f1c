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

/** Every option whose value names a file, by how its description or its name says so. */
function fileOptions(option: Option, at: string): string[] {
  const { properties, patternProperties, items, expects, holds } = nonNull(option);
  const children = { ...properties, ...patternProperties, ...(items && { '*': items }) };
  const namesFile = /(?:path|paths) of (?:a file|files)|sqlite:/.test(expects ?? '') && items === undefined;
  return [
    ...(namesFile && holds === undefined ? [at] : []),
    ...Object.entries(children).flatMap(([name, child]) => fileOptions(child, `${at}.${name}`)),
  ];
}

t.test('each option that names a file is known as one', (t) => {
  t.same(fileOptions(configSchema, ''), []);
  t.end();
});

t.test('relative paths start from the directory of the file, those of defaults too', (t) => {
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
  t.same(loadConfig({ file: path.join(path.basename(directory), 'gateway.yaml') }), found, 'wherever it is started');
  t.equal(loadConfig({ text: 'accessLog: { destination: stdout }' }).accessLog.destination, 'stdout');
  t.equal(
    loadConfig().torExits.snapshotFile,
    path.resolve('var/tor-exits.json'),
    'without a file: where it is started',
  );
  t.equal(
    loadConfig({ file: '/dev/null' }).torExits.snapshotFile,
    path.resolve('var/tor-exits.json'),
    'as from a pipe',
  );
  t.end();
});

t.test('a path that earlier releases found in the working directory is refused, not made anew elsewhere', (t) => {
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
  const said = (line: number, option: string, name: string): string =>
    `line ${line}: ${option}: is relative to the configuration file, and there is no ${directory}/etc/var/${name}; ` +
    `there is a ${directory}/var/${name} in the working directory: write that path, or move the file`;
  t.same(problemsOf({ file }), [
    said(1, 'registry.database.url', 'registry.db'),
    said(2, 'accessLog.destination', 'access.log'),
    said(3, 'torExits.sources[0]', 'exits.txt'),
  ]);
  mkdirSync(path.join(directory, 'etc/var'));
  for (const name of ['registry.db', 'access.log', 'exits.txt']) writeFileSync(`etc/var/${name}`, '');
  t.same(problemsOf({ file }), [], 'one beside the configuration is what is meant');
  writeFileSync(file, '');
  t.same(problemsOf({ file }), [], 'of a default nobody can tell');
  t.end();
});
