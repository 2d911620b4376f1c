import { spawnSync } from 'node:child_process';
import { openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { productCommand } from '../product-command.js';

/** The URL of a module that is loaded before a command. It makes V8 print its flags when the command ends. */
const preload = `data:text/javascript,${encodeURIComponent(`
  import { setFlagsFromString } from 'node:v8';
  process.on('exit', () => setFlagsFromString('--help'));
`)}`;

const directory = t.testdir();

/** If V8's memory outside its heap peaks at this many megabytes, V8 has optimised undici's parser. */
const enough = 24;

function flagsOf(command: string): string {
  const file = path.join(directory, command);
  const line = productCommand([command, '--config', '/nowhere.yaml'], ['--import', preload]);
  // The flags go to a file. V8 does not wait while a pipe is full, so a pipe would lose some of them.
  spawnSync(...line, { stdio: ['ignore', openSync(file, 'w'), 'ignore'] });
  return readFileSync(file, 'utf8');
}

t.test('a gateway bounds garbage and compiler memory, and keeps its compiled code while idle', (t) => {
  const flags = flagsOf('gateway');
  // If a later V8 lacks one of these flags, find its replacement.
  t.match(flags, /--heap-growing-percent=30\n/);
  t.match(flags, /--gc-memory-reducer-start-delay-ms=2147483647\n/);
  t.match(flags, /--no-wasm-tier-up\n/);
  t.match(flags, /--no-wasm-dynamic-tiering\n/);
  const others = flagsOf('services');
  const hasMaglev = Number.parseInt(process.versions.node, 10) >= 24;
  t.match(flags, /--no-maglev-inlining\n/); // the V8 default on Node 20
  t.equal(flags.includes('--no-sparkplug\n'), hasMaglev, 'without Maglev, Sparkplug stays enabled');
  t.match(others, /--heap-growing-percent=0\n/, 'other commands keep the defaults of Node');
  t.match(others, /--gc-memory-reducer-start-delay-ms=8000\n/);
  t.match(others, /--sparkplug\n/);
  t.end();
});

t.test("undici's parser is not optimised by V8, which would need 30 MB for a short time", (t) => {
  // The peak is 26 MB if V8 optimises one function of the parser at a time, 39 MB if two. With the flags: 2 to 13 MB.
  t.ok(peakOf(false) > enough, 'default flags');
  t.ok(peakOf(true) < 18, 'flags of a gateway');
  t.end();
});

/**
 * Runs a process that uses undici as a gateway's warm-up does. Returns the peak of V8's memory outside its heap, in
 * megabytes.
 * @param isTuned whether the process sets the flags of a gateway
 */
function peakOf(isTuned: boolean): number {
  const program = `
    import http from 'node:http';
    import { getHeapStatistics } from 'node:v8';
    import { setTimeout as wait } from 'node:timers/promises';
    import { tuneHeap } from ${JSON.stringify(pathToFileURL(path.resolve('dist/cli/tune-heap.js')).href)};
    if (${String(isTuned)}) tuneHeap();
    const { Pool } = await import('undici');
    const server = http.createServer((request, response) => response.end('answer')).listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const pool = new Pool('http://127.0.0.1:' + server.address().port, { connections: 4 });
    for (let count = 0; count < 600; count += 1) await (await pool.request({ path: '/', method: 'GET' })).body.dump();
    const peak = () => getHeapStatistics().peak_malloced_memory / 1e6;
    for (let look = 0; look < ${isTuned ? 10 : 1_000} && peak() < ${enough}; look += 1) await wait(50);
    console.log(peak());
    process.exit();
  `;
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', program], {
    encoding: 'utf8',
  });
  const peak = Number(stdout);
  if (stdout === '' || Number.isNaN(peak)) throw new Error(`no figure: ${stderr}`);
  return peak;
}
