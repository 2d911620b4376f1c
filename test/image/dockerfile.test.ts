import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import t from 'tap';
import { loadConfig } from '../../src/config/load.js';

/** One instruction, with its continuation lines. */
interface Instruction {
  readonly name: string;
  readonly text: string;
}

const instructions: readonly Instruction[] = readFileSync('Dockerfile', 'utf8')
  .replaceAll(/^#.*\n/gm, '')
  .replaceAll(/\\\n\s*/g, ' ')
  .split('\n')
  .filter((line) => line.trim() !== '')
  .map((line) => {
    const [name = '', ...rest] = line.split(' ');
    return { name, text: rest.join(' ').trim() };
  });
const lastStage = instructions.slice(instructions.findLastIndex(({ name }) => name === 'FROM'));

function textsOf(name: string, among: readonly Instruction[] = instructions): string[] {
  return among.filter((one) => one.name === name).map(({ text }) => text);
}

t.test('the image is built from the lock file, and contains only what it runs', (t) => {
  t.same(textsOf('ADD'), [], 'no ADD: nothing is downloaded or unpacked implicitly');
  const installs = textsOf('RUN').filter((text) => text.includes('npm ') && !text.startsWith('npm run '));
  t.equal(installs.length, 2);
  for (const text of installs) t.match(text, /^npm ci .*--ignore-scripts/);
  t.match(textsOf('COPY', lastStage), [
    /^--from=dependencies .*node_modules /,
    /^--from=dependencies .*sbom\.cdx\.json \/app\/$/,
    /^--from=build/,
    /^package\.json LICENSE/,
    /^config/,
    /^tor-exit-list/,
  ]);
  t.notMatch([...textsOf('ARG'), ...textsOf('ENV')].join('\n'), /token|password|secret|key/i);
  t.match(
    textsOf('ARG')[0],
    /^NODE_IMAGE=docker\.io\/library\/node:24-bookworm-slim$/,
    'the base image is named with its tag',
  );
  t.end();
});

t.test('the image runs without a shell, as an unprivileged user, and labels its version', (t) => {
  t.same(textsOf('USER', lastStage), ['1000:1000']);
  t.same(JSON.parse(textsOf('ENTRYPOINT', lastStage)[0] ?? ''), ['node', '/app/dist/cli/main.js']);
  const [, options = ''] = /NODE_OPTIONS="([^"]+)"/.exec(textsOf('ENV', lastStage).join(' ')) ?? [];
  t.equal(options, '--max-semi-space-size=8 --v8-pool-size=1');
  const documented = readFileSync('docs/operations.md', 'utf8').match(/[^"`]*--use-largepages=\w+/g) ?? [];
  t.same(documented, [`${options} --use-largepages=silent`], 'a value with another option repeats those of the image');
  const { status } = spawnSync(process.execPath, ['-e', ''], { env: { NODE_OPTIONS: options } });
  t.equal(status, 0, "Node accepts the image's NODE_OPTIONS");
  t.match(
    textsOf('ENV', lastStage).join(' '),
    /MALLOC_ARENA_MAX=1\b.*MALLOC_TRIM_THRESHOLD_=131072\b.*MALLOC_MMAP_THRESHOLD_=30000\b/s,
    "the image sets glibc's malloc options",
  );
  t.doesNotThrow(() => void JSON.parse(textsOf('CMD', lastStage)[0] ?? ''));
  t.match(textsOf('HEALTHCHECK', lastStage)[0], /CMD \["node", /);
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  t.match(textsOf('LABEL', lastStage)[0], `org.opencontainers.image.version="${version}"`);
  const { listen, registry, services } = loadConfig({ text: 'listen: { https: { certFile: a, keyFile: b } }' });
  const ports = [listen.https, listen.http, listen.management, registry.listen, services.listen].map(
    (one) => one?.port,
  );
  t.same(textsOf('EXPOSE', lastStage)[0]?.split(' ').map(Number), ports, 'the exposed ports are the default ones');
  t.end();
});

t.test('what the Dockerfile copies exists, and nothing else is in the build context', (t) => {
  const [everything, ...admitted] = readFileSync('.dockerignore', 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  t.equal(everything, '*');
  const copied = textsOf('COPY')
    .filter((text) => !text.startsWith('--from'))
    .flatMap((text) => text.split(/\s+/).slice(0, -1));
  for (const name of copied) t.ok(existsSync(name), name);
  t.same(new Set(admitted.map((line) => line.slice(1))), new Set(copied));
  t.end();
});
