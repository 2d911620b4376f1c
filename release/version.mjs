// What `npm version` changes besides package.json and package-lock.json, and adds to its commit: the script "version". With --check, the
// script "preversion", it changes nothing.
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';

/** Where the version stands: each of these places has to have it, and nothing else of the file is touched. */
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

/** The changelog, cut behind the heading of what is not released. */
function changelog() {
  const text = readFileSync('CHANGELOG.md', 'utf8');
  const start = text.indexOf(`${heading}\n`);
  if (start === -1) fail(`CHANGELOG.md has no heading "${heading}".`);
  const rest = text.slice(start + heading.length);
  const [entries] = rest.split(/^## /m, 1);
  if (!/^- /m.test(entries)) fail(`CHANGELOG.md has nothing under "${heading}": say what the release changes first.`);
  return { before: text.slice(0, start + heading.length), rest };
}

/** A file with the new version in the place of the old one. */
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
