import { readdirSync, readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { ESLint } from 'eslint';
import t from 'tap';
import ts from 'typescript';
import tseslint from 'typescript-eslint';

const root = process.cwd();

function filesBelow(folder: string): string[] {
  return readdirSync(path.join(root, folder), { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)))
    .filter((name) => !name.split(path.sep).includes('node_modules')) // installed by the bench
    .toSorted();
}

/** One module, its text, and everything that it imports, re-exports or loads at run time. */
interface SourceFile {
  /** Relative to the repository root, such as `src/policy/facts.ts`. */
  readonly name: string;
  readonly text: string;
  readonly specifiers: readonly string[];
}

function readSource(name: string): SourceFile {
  const text = readFileSync(path.join(root, name), 'utf8');
  return { name, text, specifiers: ts.preProcessFile(text, true, true).importedFiles.map(({ fileName }) => fileName) };
}

const sources = filesBelow('src')
  .filter((name) => name.endsWith('.ts') && !name.startsWith('src/console/'))
  .map(readSource);
const tests = filesBelow('test')
  .filter((name) => name.endsWith('.ts'))
  .map(readSource);

/** The pages of the console. They run in a browser, and the build bundles them with their packages. */
const pages = filesBelow('src/console')
  .filter((name) => /\.tsx?$|\.mjs$/.test(name))
  .map(readSource);

/** The target of a relative specifier, such as `src/policy/facts.ts`; null for a package or a Node module. */
function targetOf(from: SourceFile, specifier: string): string | null {
  if (!specifier.startsWith('.')) return null;
  return path.join(path.dirname(from.name), specifier).replace(/\.js$/, '.ts');
}

/** The package of a specifier, e.g. `typebox` for `typebox/compile`; null for a file or a Node module. */
function packageOf(specifier: string): string | null {
  if (specifier.startsWith('.') || isBuiltin(specifier)) return null;
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
}

function folderOf(name: string): string {
  return name.split('/')[1] ?? '';
}

const everywhere = ['config', 'policy', 'telemetry', 'typebox', 'node'];

/** The folders or files that each folder may import besides itself. */
const allowedImports: Readonly<Record<string, readonly string[]>> = {
  typebox: [],
  node: [],
  json: [],
  policy: [],
  usage: ['policy', 'typebox'],
  gateway: ['json', 'policy', 'typebox'],
  config: ['policy', 'typebox'],
  evidence: [],
  telemetry: ['evidence'],
  audit: ['evidence', ...everywhere],
  database: ['config'],
  adapters: ['gateway', 'json', 'policy', 'config', 'typebox'],
  tls: ['config'],
  edge: ['gateway', 'tls', 'usage', ...everywhere],
  rest: [
    'json',
    'policy/client-address.ts',
    'policy/ip-address.ts',
    'policy/ip-ranges.ts',
    'policy/key-format.ts',
    'telemetry/mask-keys.ts',
    'telemetry/process-metrics.ts',
    'config',
    'node',
    'tls',
    'typebox',
  ],
  services: ['rest', 'database', 'config', 'tls', 'typebox'],
  registry: [
    'evidence',
    'json',
    'rest',
    'tls',
    'usage',
    'database',
    'gateway/records.ts',
    'gateway/channel-ports.ts',
    'gateway/store-ports.ts',
    'gateway/api-key.ts',
    ...everywhere,
  ],
  cli: [
    'json',
    'evidence',
    'edge',
    'audit',
    'registry',
    'services',
    'rest',
    'tls',
    'usage',
    'adapters',
    'gateway',
    'database/sqlite.ts',
    ...everywhere,
  ],
};

t.test('imports go in one direction: from the edges to the policy, and never back', (t) => {
  const folders = [...new Set(sources.map(({ name }) => folderOf(name)))];
  t.same(
    folders.filter((folder) => !Object.hasOwn(allowedImports, folder)),
    [],
    'every folder has its row in the table',
  );
  const forbidden: string[] = [];
  for (const source of sources) {
    const folder = folderOf(source.name);
    for (const specifier of source.specifiers) {
      const target = targetOf(source, specifier);
      if (target === null) continue;
      const allowed = [folder, ...(allowedImports[folder] ?? [])].map((place) => `src/${place}`);
      if (!allowed.some((place) => target === place || target.startsWith(`${place}/`))) {
        forbidden.push(`${source.name} imports ${target}`);
      }
    }
  }
  t.same(forbidden, []);
  t.end();
});

/** Returns a function that finds the files that a file imports, directly or through others, also for types. */
function reachOf(files: readonly SourceFile[]): (name: string) => Set<string> {
  const imports = new Map(files.map((file) => [file.name, file.specifiers.map((one) => targetOf(file, one))]));
  const reached = (name: string, found = new Set<string>()): Set<string> => {
    for (const target of imports.get(name) ?? []) {
      if (target === null || found.has(target)) continue;
      found.add(target);
      reached(target, found);
    }
    return found;
  };
  return (name) => reached(name);
}

/** Groups of files that import each other, directly or indirectly, types included. */
function cyclesOf(files: readonly SourceFile[]): string[][] {
  const reached = reachOf(files);
  return files
    .filter(({ name }) => reached(name).has(name))
    .map(({ name }) => [name, ...[...reached(name)].filter((other) => other !== name && reached(other).has(name))]);
}

t.test('no file imports itself indirectly, not even for a type', (t) => {
  t.same(cyclesOf(sources), []);
  // The pages import without an extension.
  const named = pages.map((page) => ({
    name: page.name.replace(/\.\w+$/, '.ts'),
    text: '',
    specifiers: page.specifiers.map((one) => (one.startsWith('.') ? `${one}.js` : one)),
  }));
  t.ok(named.some((page) => page.specifiers.some((one) => targetOf(page, one) === 'src/console/api.ts')));
  t.same(cyclesOf(named), []);
  const [a, b] = [
    { name: 'src/a.ts', text: '', specifiers: ['./b.js'] },
    { name: 'src/b.ts', text: '', specifiers: ['./a.js', './c.js'] },
  ];
  t.same(
    cyclesOf([a, b]).map((names) => names.toSorted()),
    [
      ['src/a.ts', 'src/b.ts'],
      ['src/a.ts', 'src/b.ts'],
    ],
  );
  t.end();
});

t.test('to change a step of a request, one has to know at most 35 files with 2,200 lines', (t) => {
  const steps = 'src/edge/auth/steps.ts';
  const files = [steps, ...reachOf(sources)(steps)];
  const lines = sources
    .filter(({ name }) => files.includes(name))
    .reduce((sum, { text }) => sum + text.split('\n').length - 1, 0);
  t.ok(files.length > 20 && files.length <= 35, `${files.length} files`);
  t.ok(lines > 1_000 && lines <= 2_200, `${lines} lines`);
  t.end();
});

/**
 * What a gateway must not load at its start: SQL, certificate and signature libraries, node:http with all exports, and
 * typebox as published. The many modules of typebox take 20 MB; the build bundles them into one.
 */
const heavy: readonly string[] = [
  'jose',
  'kysely',
  'libsql',
  'node:http',
  'openid-client',
  'pg',
  'selfsigned',
  'typebox',
];

/** Everything that a built module loads statically: built modules and packages. */
function loadedAtStart(name: string, found = new Set<string>()): Set<string> {
  if (found.has(name)) return found;
  found.add(name);
  const text = readFileSync(path.join(root, name), 'utf8');
  for (const [, specifier = ''] of text.matchAll(/^(?:import|export)\b(?:[^;'"]*?\bfrom )?\s*["']([^"']+)["']/gm)) {
    if (specifier.startsWith('.')) loadedAtStart(path.join(path.dirname(name), specifier), found);
    else found.add(packageOf(specifier) ?? specifier);
  }
  return found;
}

t.test('a gateway loads no heavy module at its start: the parts that need one load it on demand', (t) => {
  const loaded = [...loadedAtStart('dist/cli/run.js'), ...loadedAtStart('dist/cli/gateway.js')];
  t.ok(loaded.includes('dist/edge/start-gateway.js'), "the gateway's own modules are found");
  t.same(
    loaded.filter((name) => name.startsWith('dist/database/') || heavy.includes(name)),
    [],
  );
  t.end();
});

t.test('a registry, which restarts after a crash, loads no module of a gateway', (t) => {
  const loaded = [...loadedAtStart('dist/cli/run.js'), ...loadedAtStart('dist/cli/registry.js')];
  t.ok(loaded.includes('dist/adapters/redis/registry/open-records-store.js'), "the registry's own modules are found");
  const foreign =
    /^(?:dist\/(?:edge|audit|services|adapters\/(?!redis\/))|dist\/cli\/admin\/keys|maxmind$|@fastify\/http-proxy$)/;
  t.same(
    loaded.filter((name) => foreign.test(name)),
    [],
  );
  const kysely = loadedAtStart('dist/database/kysely.js');
  t.same([...kysely], ['dist/database/kysely.js'], 'the build has bundled Kysely into one file');
  t.end();
});

t.test('every relative import names an existing file', (t) => {
  const names = new Set([...sources, ...tests].map(({ name }) => name));
  const broken = [...sources, ...tests].flatMap((source) =>
    source.specifiers.filter((specifier) => {
      const target = targetOf(source, specifier);
      return target !== null && target.endsWith('.ts') && !names.has(target);
    }),
  );
  t.same(broken, []);
  t.end();
});

/** Packages that only some places may import. A place is a folder (with a trailing slash) or a file. */
const packagePlaces: readonly { readonly name: RegExp; readonly places: readonly string[] }[] = [
  { name: /^(?:@fastify\/.*|fastify.*)$/, places: ['src/edge/', 'src/rest/', 'src/services/', 'src/registry/'] },
  { name: /^(?:ioredis|redis|@redis\/.*)$/, places: ['src/adapters/redis/'] },
  { name: /^maxmind$/, places: ['src/adapters/geoip/'] },
  {
    name: /^undici$/,
    places: [
      ...['src/edge/', 'src/adapters/checkpoints/', 'src/adapters/otlp/', 'src/adapters/tor/', 'src/cli/compose/'],
      'src/adapters/operators/',
      'src/adapters/webhooks/',
      'src/cli/admin/admin-client.ts',
    ],
  },
  { name: /^kysely$/, places: ['src/database/kysely.ts'] },
  { name: /^(?:libsql|pg)$/, places: ['src/database/'] },
  { name: /^commander$/, places: ['src/cli/'] },
  { name: /^openid-client$/, places: ['src/registry/sign-in/'] },
  { name: /^typebox$/, places: ['src/typebox/'] },
];

/** The only packages that the inner folders may import. */
const packagesOf: Readonly<Record<string, readonly string[]>> = {
  policy: ['ipaddr.js'],
  gateway: [],
};

t.test('only the folders that wrap an external system import its package', (t) => {
  const forbidden = sources.flatMap((source) =>
    source.specifiers
      .map(packageOf)
      .filter((name) => name !== null)
      .filter((name) => {
        const inner = packagesOf[folderOf(source.name)];
        if (inner !== undefined && !inner.includes(name)) return true;
        const rule = packagePlaces.find((one) => one.name.test(name));
        return rule !== undefined && !rule.places.some((place) => source.name.startsWith(place));
      })
      .map((name) => `${source.name} imports ${name}`),
  );
  t.same(forbidden, []);
  t.end();
});

t.test('the pages of the console use nothing of the server, so that none of its code reaches a browser', (t) => {
  t.ok(pages.length > 5);
  const targets = pages.flatMap((source) => source.specifiers.map((specifier) => targetOf(source, specifier)));
  t.same(
    targets.filter((target) => target !== null && !target.startsWith('src/console/')),
    [],
  );
  t.same(
    packagesIn(pages),
    new Set(['@tanstack/react-query', 'esbuild', 'react', 'react-dom', 'wouter']),
    'each further package makes the pages larger',
  );
  t.end();
});

/** Names of functions and objects that wait, or that access the clock, random numbers or the outside. */
const impureNames: ReadonlySet<string> = new Set([
  ...['Promise', 'Date', 'random', 'process', 'performance', 'crypto', 'fetch', 'console', 'globalThis', 'require'],
  ...[
    'setTimeout',
    'setInterval',
    'setImmediate',
    'queueMicrotask',
    'structuredClone',
    'Intl',
    'eval',
    'Function',
    'fs',
  ],
]);
const waiting: ReadonlySet<ts.SyntaxKind> = new Set([
  ts.SyntaxKind.AsyncKeyword,
  ts.SyntaxKind.AwaitExpression,
  ts.SyntaxKind.AwaitKeyword,
  ts.SyntaxKind.YieldExpression,
]);

function impuritiesOf({ name, text }: SourceFile): string[] {
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (waiting.has(node.kind)) found.push(`${name}: ${ts.SyntaxKind[node.kind]}`);
    if (ts.isIdentifier(node) && impureNames.has(node.text)) found.push(`${name}: ${node.text}`);
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(name, text, ts.ScriptTarget.ES2023, true));
  return found;
}

t.test('the policy is pure: it neither waits nor reads a clock, random numbers or any state of the machine', (t) => {
  const policy = sources.filter(({ name }) => name.startsWith('src/policy/'));
  t.ok(policy.length > 5, 'the policy has files');
  t.same(policy.flatMap(impuritiesOf), []);
  t.same(
    policy.flatMap(({ name, specifiers }) =>
      specifiers.filter((one) => isBuiltin(one)).map((one) => `${name}: ${one}`),
    ),
    [],
  );
  const impure = 'export const a = async () => { await b; return Date.now() + Math.random() + process.pid; };';
  t.equal(impuritiesOf({ name: 'x.ts', text: impure, specifiers: [] }).length, 5, 'impure code is found');
  t.end();
});

t.test('no folder has more than 15 files, so that a reader sees all of it at once', (t) => {
  const all = [...sources, ...pages].map(({ name }) => path.dirname(name));
  const sizes = new Map([...new Set(all)].map((folder) => [folder, all.filter((one) => one === folder).length]));
  const large = [...sizes].filter(([folder, files]) => files > 15 && !folder.endsWith('/migrations'));
  t.same(large, [], 'migrations are read one by one, and never change');
  t.ok(sizes.size > 50, `${sizes.size} folders`);
  t.end();
});

/** All texts of the console are in this file, so that a translator has one file to translate. */
const textsOfTheConsole = 'src/console/texts.ts';

t.test('a file is named after its one export, and is short enough for one purpose', (t) => {
  const problems = [...sources, ...pages].flatMap(({ name, text }) => {
    const segments = name
      .replace(/\.(?:tsx?|mjs)$/, '')
      .split('/')
      .slice(1);
    const file = segments.at(-1) ?? '';
    const lines = text.trimEnd().split('\n').length;
    return [
      ...(segments.every((segment) => /^[a-z0-9]+(?:-[a-z0-9]+)*$/.test(segment)) ? [] : ['is not in kebab-case']),
      ...(segments.some((segment) => /(?:^|-)(?:utils?|helpers?|common|managers?)(?:-|$)/.test(segment))
        ? ['has a name without meaning']
        : []),
      ...(file === 'index' ? ['is a barrel'] : []),
      ...(lines > 300 && name !== textsOfTheConsole ? [`has ${lines} lines`] : []),
    ].map((problem) => `${name} ${problem}`);
  });
  t.same(problems, []);
  t.same(
    filesBelow('src').filter((name) => /\.[cm]?jsx?$|\.[cm]ts$/.test(name)),
    ['src/console/build.mjs'],
    'all source is TypeScript, except what builds the pages',
  );
  t.end();
});

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly scripts: Readonly<Record<string, string>>;
}

const manifest = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as Manifest;

function packagesIn(files: readonly SourceFile[]): Set<string> {
  return new Set(files.flatMap(({ specifiers }) => specifiers.map(packageOf)).filter((name) => name !== null));
}

function missingFrom(some: ReadonlySet<string>, names: ReadonlySet<string>): string[] {
  return [...names].filter((name) => !some.has(name));
}

t.test('every imported package is a dependency, and every dependency is imported', (t) => {
  const imported = packagesIn(sources);
  const declared = new Set(Object.keys(manifest.dependencies));
  t.same(missingFrom(declared, imported), [], 'imported, but not a dependency');
  t.same(missingFrom(imported, declared), [], 'a dependency, but not imported');
  t.end();
});

/** Packages only for the compiler, with the types of Node and of other packages. No file imports them. */
const typesOnly = ['@types/node', '@types/pg', '@types/react', '@types/react-dom', '@types/ws'];

/** Packages that are imported only by a program that a test generates and compiles. */
const ofWrittenPrograms = ['openapi-fetch'];

/** The commands of a package, as package scripts call them. */
function commandsOf(name: string): string[] {
  const { bin = {} } = JSON.parse(readFileSync(path.join(root, 'node_modules', name, 'package.json'), 'utf8')) as {
    bin?: string | Record<string, string>;
  };
  return typeof bin === 'string' ? [name.replace(/^@[^/]+\//, '')] : Object.keys(bin);
}

t.test('every development dependency is used by a test, a configuration file or a package script', (t) => {
  const configurations = readdirSync(root)
    .filter((name) => /\.config\.[cm]?[jt]s$/.test(name))
    .map(readSource);
  const imported = packagesIn([...tests, ...pages, ...configurations]);
  // The build replaces React by Preact. axe runs in the page, so a test reads its file instead of importing it.
  for (const name of ['preact', 'axe-core']) imported.add(name);
  for (const name of ['react', 'react-dom']) imported.delete(name);
  const words = [...Object.values(manifest.scripts), readSource('.taprc').text].join(' ');
  const commands = new Set(words.split(/[\s;&|]+/));
  const unused = Object.keys(manifest.devDependencies).filter(
    (name) =>
      ![...typesOnly, ...ofWrittenPrograms].includes(name) &&
      !imported.has(name) &&
      !commandsOf(name).some((one) => commands.has(one)),
  );
  t.same(unused, []);
  const declared = new Set([...Object.keys(manifest.devDependencies), ...Object.keys(manifest.dependencies)]);
  t.same(missingFrom(declared, imported), [], 'every package that they import is declared');
  t.same(
    Object.keys(manifest.devDependencies).filter((name) => name in manifest.dependencies),
    [],
    'each is declared once',
  );
  t.end();
});

t.test('only the envelope’s own files write the body of a failure', (t) => {
  const owners = ['src/edge/response/replies.ts', 'src/edge/request/errors.ts', 'src/rest/envelope.ts'];
  const failureBody = /["'`]?\bsuccess\b\\?["'`]?\s*:\s*false\b/;
  const writers = sources.filter(({ text }) => failureBody.test(text)).map(({ name }) => name);
  t.same(
    writers.filter((name) => !owners.includes(name)),
    [],
  );
  t.ok(writers.includes('src/edge/response/replies.ts'), 'the pattern matches');
  t.end();
});

t.test('at most three places use private interfaces of Node or of a package, each with its reason', async (t) => {
  const config = (await import(pathToFileURL(path.join(root, 'eslint.config.js')).href)) as {
    exceptions: readonly { readonly files: readonly string[]; readonly names: readonly string[] }[];
  };
  t.ok(config.exceptions.length <= 3);
  for (const { files, names } of config.exceptions) {
    const used = sources.filter(({ name }) => name.startsWith((files[0] ?? '').replace('/**/*.ts', '')));
    t.ok(used.length > 0, `${files.join()} exists`);
    for (const name of names)
      t.ok(
        used.some(({ text }) => text.includes(`.${name}`)),
        `${name} is used`,
      );
  }
  // Without the rules that need types: reading the types of the whole product takes a quarter of a minute.
  const eslint = new ESLint({ cwd: root, overrideConfig: tseslint.configs.disableTypeChecked });
  const [result] = await eslint.lintText(
    ['socket._handle = 1;', 'socket.destroySoon = f;', "socket.removeAllListeners('x');"].join('\n'),
    { filePath: path.join(root, 'src/edge/response/replies.ts') },
  );
  const found = result?.messages.filter(({ ruleId }) => ruleId === 'no-restricted-syntax') ?? [];
  t.same(
    found.map(({ line }) => line),
    [1, 2, 3],
  );
});

t.test('the HTTP/1.1 client does not depend on the gateway', (t) => {
  const client = sources.filter(({ name }) => name.startsWith('src/edge/http1/'));
  const outside = client
    .flatMap((source) => source.specifiers.map((specifier) => targetOf(source, specifier)))
    .filter((target) => target !== null && !target.startsWith('src/edge/http1/'));
  t.ok(client.length > 3);
  t.same([...new Set(outside)].toSorted(), ['src/node/end-of-turn.ts', 'src/policy/memoize.ts']);
  t.end();
});
