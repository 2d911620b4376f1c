import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { verify } from '../audit/verify-log.js';

const lines = 130;

/** The source of a program that runs `prepare`, logs to a file until a write fails, and then runs `act`. */
const program = (prepare: string, act: string, checkMilliseconds = 50): string => `
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { setTimeout as wait } from 'node:timers/promises';
const destination = process.argv[1];
${prepare}
const { ChainedLog } = await import('./dist/telemetry/chained-log.js');
const log = new ChainedLog({
  destination, secret: null, environment: 'live', now: Date.now, onReopenFailure: () => {},
  renameMilliseconds: ${checkMilliseconds},
});
const write = (n) => log.write(JSON.stringify({ n, pad: 'x'.repeat(400), event: { id: String(n) } }));
for (let n = 0; n < ${lines}; n += 1) write(n);
for (let look = 0; look < 1000 && log.problem() === null; look += 1) await wait(10);
const problem = log.problem();
// Gives the log time to see that the file still exists with its content. If the process pauses, only one turn is lost.
for (let turn = 0; turn < 250; turn += 1) await wait(2);
${act}
for (let look = 0; look < 300 && log.problem() !== null; look += 1) await wait(10);
const after = log.problem();
write(${lines});
await log.close(5000);
console.log(JSON.stringify({ problem, after }));
process.exit();
`;

/** A disk of 64 KiB: a removed file occupies its space until it is closed. */
const smallDisk = `
const sizes = new Map();
const real = { ...fs };
fs.write = (descriptor, bytes, offset, then) => {
  const room = 64 * 1024 - [...sizes.values()].reduce((sum, size) => sum + size, 0);
  const length = Math.min(room, bytes.length - offset);
  sizes.set(descriptor, (sizes.get(descriptor) ?? 0) + length);
  if (length > 0) real.write(descriptor, bytes, offset, length, then);
  else setImmediate(then, Object.assign(new Error('there is no space left'), { code: 'ENOSPC' }), 0);
};
fs.close = (descriptor, then) => {
  sizes.delete(descriptor);
  real.close(descriptor, then);
};
syncBuiltinESMExports();
`;

const withFirstWrite = 'stale ??= descriptor;';

/**
 * The descriptor becomes stale during a write of several lines. Only the first line and a part of the second one are
 * stored.
 */
const withinLine = `
  const firstLine = bytes.indexOf(10) + 1;
  if (stale === null && firstLine < bytes.length) {
    stale = descriptor;
    real.write(descriptor, bytes, 0, firstLine + 100, then);
    return;
  }
`;

/** A file whose descriptor becomes stale during a write, as on NFS after a failover of the server. */
const staleFile = (becomesStale: string): string => `
let stale = null;
const real = { ...fs };
const staleError = () => Object.assign(new Error('stale file handle'), { code: 'ESTALE' });
fs.write = (descriptor, bytes, offset, then) => {
  ${becomesStale}
  if (descriptor === stale) setImmediate(then, staleError(), 0);
  else real.write(descriptor, bytes, offset, then);
};
fs.fstat = (descriptor, then) => {
  if (descriptor === stale) setImmediate(then, staleError());
  else real.fstat(descriptor, then);
};
fs.fstatSync = (descriptor) => {
  if (descriptor === stale) throw staleError();
  return real.fstatSync(descriptor);
};
syncBuiltinESMExports();
`;

interface Line {
  readonly n?: number;
  readonly event: { readonly sequence: number };
}

function linesOf(file: string): string[] {
  return existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : [];
}

// Regression: one unwritten line blocked all later lines, even in a new file. They were lost when the process ended.
t.test('after a full file is moved away, the next one starts with the first line not completely written', (t) => {
  const file = path.join(t.testdir(), 'access.log');
  const renaming = program('', "fs.renameSync(destination, destination + '.1'); log.reopen();");
  const shell = 'ulimit -f 64; exec "$0" --input-type=module --eval "$1" "$2"';
  const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', shell, process.execPath, renaming, file], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH },
    timeout: 60_000,
  });
  t.match(stdout, /^\{"problem":"writing fails: EFBIG; lines lost: 0","after":null\}\n$/, stderr);
  t.equal(readFileSync(`${file}.1`).length, 64 * 1024);
  t.not(readFileSync(`${file}.1`).at(-1), 0x0a, 'the file ends within a line');
  const all = [...linesOf(`${file}.1`), ...linesOf(file)].map((text) => JSON.parse(text) as Line);
  t.same(
    all.map(({ event }) => event.sequence),
    all.map((_, index) => index + 1),
    'each once, in order',
  );
  t.same(
    all.flatMap(({ n }) => (n === undefined ? [] : [n])),
    Array.from({ length: lines + 1 }, (_, n) => n),
  );
  t.end();
});

// Regression: removing the log freed no space, because the gateway held it open. It sent 503 until it was restarted.
t.test('a removed file on a full disk is closed, and the lines not yet written to it go into the next file', (t) => {
  const file = path.join(t.testdir(), 'access.log');
  const removing = program(smallDisk, 'fs.rmSync(destination); log.reopen();');
  const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', removing, file], {
    encoding: 'utf8',
    timeout: 60_000,
  });
  t.match(stdout, /^\{"problem":"writing fails: ENOSPC; lines lost: 0","after":null\}\n$/, stderr);
  const numbers = linesOf(file).flatMap((text) => (JSON.parse(text) as Line).n ?? []);
  const [first = 0] = numbers;
  t.ok(first > 100, `${first} is the first line not completely in the removed file`);
  t.same(
    numbers,
    Array.from({ length: lines + 1 - first }, (_, index) => first + index),
  );
  t.end();
});

const staleOnes = [
  { when: 'at once', checkMilliseconds: 50, after: 'null' },
  {
    when: 'at the latest when the process ends',
    checkMilliseconds: 1_000_000,
    after: '"writing fails: ESTALE; lines lost: 0"',
  },
];
for (const { when, checkMilliseconds, after } of staleOnes) {
  // Regression: the gateway went on writing to the stale descriptor. It sent 503 until a restart, or threw at its end.
  t.test(`a file whose descriptor is stale is opened again ${when}`, (t) => {
    const file = path.join(t.testdir(), 'access.log');
    const staying = program(staleFile(withFirstWrite), '', checkMilliseconds);
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', staying, file], {
      encoding: 'utf8',
      timeout: 60_000,
    });
    t.equal(stdout, `{"problem":"writing fails: ESTALE; lines lost: 0","after":${after}}\n`, stderr);
    const all = linesOf(file).map((text) => JSON.parse(text) as Line);
    t.same(
      all.map(({ event }) => event.sequence),
      all.map((_, index) => index + 1),
    );
    t.same(
      all.flatMap(({ n }) => (n === undefined ? [] : [n])),
      Array.from({ length: lines + 1 }, (_, n) => n),
    );
    t.end();
  });

  // Regression: the gateway appended the next line to the incomplete one, and the audit reported an edited line.
  t.test(`an incomplete line of a stale file is ended and written again ${when}`, (t) => {
    const file = path.join(t.testdir(), 'access.log');
    const staying = program(staleFile(withinLine), '', checkMilliseconds);
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', staying, file], {
      encoding: 'utf8',
      timeout: 60_000,
    });
    t.equal(stdout, `{"problem":"writing fails: ESTALE; lines lost: 0","after":${after}}\n`, stderr);
    const contents = readFileSync(file);
    const { findings, notes, requests } = verify([contents], { secrets: [] });
    t.same(findings, []);
    t.match(notes, [/^1:2: incomplete line after a failed write; the gateway then reopened its log file/]);
    t.equal(requests, lines + 1, 'no line is lost');
    const [, piece = ''] = contents.toString('utf8').split('\n');
    const other = contents.toString('utf8').replace(`${piece}\n`, `${piece.slice(0, -1)}~\n`);
    t.match(verify([Buffer.from(other)], { secrets: [] }).findings, [{ line: 2, kind: 'foreign' }]);
    t.end();
  });
}
