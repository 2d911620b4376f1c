import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';

/** The most kilobytes that all pages of the console may have together, compressed with Brotli. */
const mostKilobytes = 120;

t.test('the pages of the console are small, and each asset has its compressed files', (t) => {
  const assets = path.join('dist', 'console', 'assets');
  const names = readdirSync(assets);
  const plain = names.filter((name) => !/\.(?:br|gz)$/.test(name));
  t.ok(plain.length >= 3);
  for (const name of plain) t.ok(names.includes(`${name}.br`) && names.includes(`${name}.gz`), name);
  const bytes = names
    .filter((name) => name.endsWith('.br'))
    .reduce((sum, name) => sum + statSync(path.join(assets, name)).size, statSync('dist/console/index.html.br').size);
  t.comment(`${Math.ceil(bytes / 1000)} kB`);
  t.ok(bytes <= mostKilobytes * 1000, `${bytes} bytes`);
  t.end();
});

// During an upgrade, one address can lead to registries of two builds. If one serves the page, and the other gets the
// request for the page's script, the script is missing, because each build has only its own script.
t.test('the page says what to do if its script does not load, without an inline style or script', (t) => {
  const page = readFileSync('dist/console/index.html', 'utf8');
  t.match(
    page,
    /<div id="root"><p class="waiting late">The console has not loaded\. Reload the page [^<]+<\/p><\/div>/,
  );
  t.notMatch(page, /<style|style=|<script(?! type="module" src="\/console\/assets\/)/);
  t.end();
});
