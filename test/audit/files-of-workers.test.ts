import { existsSync, readFileSync, renameSync } from 'node:fs';
import t, { type Test } from 'tap';
import type { Verdict } from '../../src/audit/chain-check.js';
import type { VerifierOptions } from '../../src/audit/verifier.js';
import type { ChainedLog } from '../../src/telemetry/chained-log.js';
import { openLog, until } from '../telemetry/open-log.js';
import { requestLine } from './sample-log.js';
import { kindsOf, linesOf, verify as verifyFiles, verifyLines } from './verify-log.js';

let time = Date.parse('2026-11-20T10:00:00Z');
const now = (): number => (time += 1_000);

interface Worker {
  readonly log: ChainedLog;
  readonly file: string;
}

const linesIn = (file: string): string[] => (existsSync(file) ? linesOf(readFileSync(file)) : []);

function open(file: string): Worker {
  return { file, log: openLog(file, { now }) };
}

async function writeTo({ file, log }: Worker): Promise<void> {
  const before = linesIn(file).length;
  log.write(requestLine({ at: now() }));
  await until(() => linesIn(file).length === before + 1);
}

async function rotate({ file, log }: Worker, renamed: string): Promise<void> {
  renameSync(file, renamed);
  log.reopen();
  await until(() => linesIn(file).length === 1 && linesIn(renamed).at(-1)?.includes('"file-end"') === true);
}

/** Two running workers. The log of each was rotated once, and then the log of the first worker a second time. */
async function logsOfWorkers(t: Test) {
  const directory = t.testdir();
  const names = [1, 2].map((number) => `${directory}/access.${number}.log`) as [string, string];
  const [one, two] = [open(names[0]), open(names[1])];
  await until(() => linesIn(one.file).length === 1 && linesIn(two.file).length === 1);
  for (const worker of [one, two]) await writeTo(worker);
  await rotate(one, `${one.file}.2`);
  await rotate(two, `${two.file}.1`);
  for (const worker of [one, two]) await writeTo(worker);
  await rotate(one, `${one.file}.1`);
  for (const worker of [one, two]) await writeTo(worker);
  t.teardown(() => Promise.all([one, two].map(({ log }) => log.close(30_000))));
  const verify = (
    files: readonly string[],
    options: Partial<VerifierOptions> = {},
    names = files.map((file) => `/var/log/access.${file}`),
  ): Verdict =>
    verifyLines(
      files.map((file) => linesIn(`${directory}/access.${file}`)),
      options,
      names,
    );
  return { workers: [one, two], verify };
}

t.test("files of several workers can be verified together, if each worker's log is intact", async (t) => {
  const { workers, verify } = await logsOfWorkers(t);
  const rotated = verify(['1.log.2', '2.log.1']);
  t.same(rotated.findings, []);
  t.match(rotated.notes, [/1\.log\.2:3: .* continues in another file/, /2\.log\.1:3: .* continues in another file/]);
  const newest = verify(['1.log', '2.log'], { running: true });
  t.same(newest.findings, []);
  t.match(newest.notes.slice(0, 2), [
    /1\.log:1: an earlier file was not given/,
    /2\.log:1: an earlier file was not given/,
  ]);
  for (const { log } of workers) await log.close(30_000);
  t.same(verify(['1.log', '2.log']).findings, []);
  for (const files of [
    ['1.log.2', '1.log.1', '1.log', '2.log.1', '2.log'],
    ['1.log.2', '2.log.1', '1.log.1', '1.log', '2.log'],
  ]) {
    const whole = verify(files);
    t.same([whole.findings, whole.notes], [[], []]);
  }
});

t.test('with --running, the last line of each worker may be incomplete', async (t) => {
  const { workers } = await logsOfWorkers(t);
  const names = workers.map(({ file }) => file);
  const files = names.map((file) => readFileSync(file));
  const cut = files.map((contents) => contents.subarray(0, -20));
  t.notOk(verifyFiles(cut, {}, names).intact, 'without it, an incomplete last line is a finding');
  const running = verifyFiles(cut, { running: true }, names);
  t.same(running.findings, []);
  t.match(running.notes.join(), /1\.log:2: incomplete line: the gateway.*2\.log:3: incomplete line: the gateway/);
  t.same(verifyFiles([...files.slice(0, 1), Buffer.alloc(0)], { running: true }, names).findings, []);
  const [one = Buffer.alloc(0), two = Buffer.alloc(0)] = files;
  const between = verifyFiles([one.subarray(0, -20), two, one], { running: true }, [...names, ...names.slice(0, 1)]);
  t.match(kindsOf(between)[0], /1\.log:2 (?:truncated|foreign)/, 'a later line of the same worker exists');
});

t.test('a missing file of one worker is detected between the files of the others', async (t) => {
  const { workers, verify } = await logsOfWorkers(t);
  for (const { log } of workers) await log.close(30_000);
  const gone = verify(['1.log.2', '2.log.1', '1.log', '2.log']);
  t.same(kindsOf(gone), ['/var/log/access.1.log:1 missing']);
  t.same(kindsOf(verify(['1.log.2', '2.log.1', '2.log'])), [], 'the newest file of a worker may be missing');
});

t.test('files of one log are not mistaken for logs of workers because of their names', async (t) => {
  const directory = t.testdir();
  const first = open(`${directory}/first.log`);
  await until(() => linesIn(first.file).length === 1);
  await rotate(first, `${directory}/first.log.1`);
  await first.log.close(30_000);
  const second = open(`${directory}/second.log`);
  await until(() => linesIn(second.file).length === 1);
  await rotate(second, `${directory}/second.log.1`);
  await second.log.close(30_000);
  const [one, two, three, four] = ['first.log.1', 'first.log', 'second.log.1', 'second.log'].map((name) =>
    linesIn(`${directory}/${name}`),
  ) as [string[], string[], string[], string[]];
  const names = ['a.3.log', 'a.2.log', 'a.1.log'];
  t.same(verifyLines([one, two, three, four], {}, ['a.3.log', 'a.2.log', 'a.1.log', 'a.log']).findings, []);
  t.same(kindsOf(verifyLines([one, three, four], {}, names)), ['a.3.log:2 truncated'], 'the second file is missing');
  t.same(kindsOf(verifyLines([one, two, four], {}, names)), ['a.1.log:1 headless'], 'the third file is missing');
});

t.test("a file of one worker under the name of another's is detected", async (t) => {
  const { workers, verify } = await logsOfWorkers(t);
  for (const { log } of workers) await log.close(30_000);
  const inPlace = verify(['2.log.1', '1.log'], {}, ['a.1.log.1', 'a.1.log']);
  t.same(kindsOf(inPlace), ['a.1.log:1 headless', 'a.1.log.1:3 truncated']);
});
