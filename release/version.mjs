// Runs during `npm version`, as the script "version". It sets the new version in the files below and in the changelog,
// and adds these files to npm's commit. With --check, as the script "preversion", it only checks that each file can be
// changed.
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';

/** The texts that contain the version, by file. Each text must be present. The rest of each file stays unchanged. */
const places = {
  Dockerfile: [(version) => `org.opencontainers.image.version="${version}"`],
  'helm/Chart.yaml': [(version) => `\nversion: ${version}\n`, (version) => `\nappVersion: ${version}\n`],
  'tor-exit-list/refresh-cronjob.yaml': [(version) => `merchant-gateway:${version}\n`],
  'docs/operations.md': [(version) => `merchant-gateway:${version}`],
  'SECURITY.md': [(version) => `merchant-gateway:${version}`],
};
const heading = '## [Unreleased]';

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}

/** Splits the changelog after the heading of unreleased changes. Fails if no change is listed there. */
function changelog() {
  const text = readFileSync('CHANGELOG.md', 'utf8');
  const start = text.indexOf(`${heading}\n`);
  if (start === -1) fail(`CHANGELOG.md has no heading "${heading}".`);
  const rest = text.slice(start + heading.length);
  const [entries] = rest.split(/^## /m, 1);
  if (!/^- /m.test(entries)) fail(`CHANGELOG.md has nothing under "${heading}": say what the release changes first.`);
  return { before: text.slice(0, start + heading.length), rest };
}

/** Returns the text of a file, with the old version replaced by the new one. */
function moved(file, from, to) {
  return places[file].reduce(
    (text, at) => {
      if (!text.includes(at(from)))
        fail(`${file} does not have ${JSON.stringify(at(from).trim())}, which names the version.`);
      return text.replaceAll(at(from), at(to));
    },
    readFileSync(file, 'utf8'),
  );
}

const { before, rest } = changelog();
const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
if (process.argv.includes('--check')) {
  for (const file of Object.keys(places)) moved(file, version, version);
} else {
  const [, former] = /^version: (.+)$/m.exec(readFileSync('helm/Chart.yaml', 'utf8')) ?? [];
  const texts = Object.keys(places).map((file) => [file, moved(file, former, version)]);
  texts.push(['CHANGELOG.md', `${before}\n\n## [${version}] - ${new Date().toISOString().slice(0, 10)}${rest}`]);
  for (const [file, text] of texts) writeFileSync(file, text);
  const { status } = spawnSync('git', ['add', ...texts.map(([file]) => file)], { stdio: 'inherit' });
  process.exitCode = status ?? 1;
}
