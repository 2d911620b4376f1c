import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { build, transform } from 'esbuild';

// Builds the pages of the console into dist/console: index.html, and assets with a hash in their names. Each file is
// also compressed as .br and .gz.

const out = 'dist/console';
rmSync(out, { recursive: true, force: true });

const { metafile } = await build({
  entryPoints: ['src/console/main.tsx', 'src/console/style.css', 'src/console/icon.svg'],
  loader: { '.svg': 'copy' },
  ...{ outdir: `${out}/assets`, entryNames: '[name]-[hash]', chunkNames: '[name]-[hash]' },
  ...{ bundle: true, splitting: true, minify: true, format: 'esm', target: 'es2022', metafile: true },
  ...{ jsx: 'automatic', logLevel: 'warning', legalComments: 'none', tsconfig: 'src/console/tsconfig.json' },
  define: { 'process.env.NODE_ENV': '"production"' },
  alias: {
    react: 'preact/compat',
    'react-dom': 'preact/compat',
    'react-dom/client': 'preact/compat/client',
    'react/jsx-runtime': 'preact/jsx-runtime',
  },
});

/** Returns the URL of the asset that was built from an entry point. */
function urlOf(entry) {
  const [file] = Object.entries(metafile.outputs).find(
    ([name, { entryPoint, inputs }]) =>
      !name.endsWith('.map') && (entryPoint === entry || Object.keys(inputs)[0] === entry),
  );
  return `/console/assets/${path.basename(file)}`;
}

const { code } = await transform(readFileSync('src/console/texts.ts', 'utf8'), { loader: 'ts' });
const { texts } = await import(`data:text/javascript,${encodeURIComponent(code)}`);

// During an upgrade, the Kubernetes Service can pass the request for the script to a registry of another build, which
// lacks this script. The page then keeps the text in #root, which the script would have replaced.
const page = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width" />
    <title>merchant-gateway</title>
    <link rel="icon" href="${urlOf('src/console/icon.svg')}" />
    <link rel="stylesheet" href="${urlOf('src/console/style.css')}" />
    <script type="module" src="${urlOf('src/console/main.tsx')}"></script>
  </head>
  <body>
    <div id="root"><p class="waiting late">${texts.notLoaded}</p></div>
  </body>
</html>
`;
writeFileSync(`${out}/index.html`, page);

const assets = Object.keys(metafile.outputs);
for (const file of [...assets, `${out}/index.html`]) {
  const text = readFileSync(file);
  writeFileSync(`${file}.br`, brotliCompressSync(text, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
  writeFileSync(`${file}.gz`, gzipSync(text, { level: 9 }));
}
