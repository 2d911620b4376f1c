import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';

const lines = 130;

/** What becomes of the lines of a log whose file takes no more than 64 KiB, and is rotated when it takes nothing more. */
const program = `
import { renameSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import { ChainedLog } from './dist/telemetry/chained-log.js';
const destination = process.argv[1];
const log = new ChainedLog({
  destination, secret: null, environment: 'live', now: Date.now, onReopenFailure: () => {},
});
const write = (n) => log.write(JSON.stringify({ n, pad: 'x'.repeat(400), event: { id: String(n) } }));
for (let n = 0; n < ${lines}; n += 1) write(n);
for (let look = 0; look < 1000 && log.problem() === null; look += 1) await wait(10);
const problem = log.problem();
renameSync(destination, destination + '.1');
log.reopen();
for (let look = 0; look < 300 && log.problem() !== null; look += 1) await wait(10);
const after = log.problem();
write(${lines});
await log.close(5000);
console.log(JSON.stringify({ problem, after }));
process.exit();
`;

interface Line {
  readonly n?: number;
  readonly event: { readonly sequence: number };
}

function linesOf(file: string): string[] {
  return existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : [];
}

// A line that could not be written held up all behind it for good, also in a new file: they were lost with the process.
t.test('lines of a file that takes nothing more go into the next one, from the first that is not whole on', (t) => {
  const file = path.join(t.testdir(), 'access.log');
  const shell = 'ulimit -f 64; exec "$0" --input-type=module --eval "$1" "$2"';
  const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', shell, process.execPath, program, file], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH },
    timeout: 60_000,
  });
  t.match(stdout, /^\{"problem":"writing fails: EFBIG; lines lost: 0","after":null\}\n$/, stderr);
  t.equal(readFileSync(`${file}.1`).length, 64 * 1024);
  t.not(readFileSync(`${file}.1`).at(-1), 0x0a, 'it ends within a line');
  const all = [...linesOf(`${file}.1`), ...linesOf(file)].map((text) => JSON.parse(text) as Line);
  t.same(
    all.map(({ event }) => event.sequence),
    all.map((_, index) => index + 1),
    'each once, in its order',
  );
  t.same(
    all.flatMap(({ n }) => (n === undefined ? [] : [n])),
    Array.from({ length: lines + 1 }, (_, n) => n),
  );
  t.end();
});
