import { createHmac } from 'node:crypto';
import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import type { Verdict } from '../../src/audit/chain-check.js';
import { readLogLines } from '../../src/audit/log-lines.js';
import type { VerifierOptions } from '../../src/audit/verifier.js';
import { Chain, logSecretOf } from '../../src/telemetry/chain.js';
import { requestLine, sampleLog } from '../audit/sample-log.js';
import { kindsOf, linesOf, verify, verifyLines } from '../audit/verify-log.js';
import { ran } from '../cli/ran.js';
import { openLog, testSecret, until } from '../telemetry/open-log.js';
import { rehashed } from './forged-lines.js';

/** A line made without the secret: a genuine one, with the id of another process and the path of another request. */
function forged(line: string, id: string): string {
  const other = line.replace(/"ephemeral_id":"\w{26}"/, `"ephemeral_id":"${id.padEnd(26, '0')}"`);
  return other.replace('/v1/payouts/', '/v1/forged/');
}

const ways: Partial<VerifierOptions>[] = [{}, { running: true }, { partial: true }, { partial: true, running: true }];

t.test('log forgery: an unproven line of another chain is found anywhere in a log', async (t) => {
  const [one, two] = (await sampleLog(t.testdir())).map(linesOf) as [string[], string[]];
  const real = one[3] ?? '';
  t.match(real, '/v1/payouts/');
  for (const options of ways) {
    const what = JSON.stringify(options);
    for (let at = 0; at <= two.length; at += 1) {
      const verdict = verifyLines([one, two.toSpliced(at, 0, forged(real, 'A'))], options);
      t.ok(kindsOf(verdict).includes(`2:${at + 1} foreign`), `before line ${at + 1} ${what}`);
    }
    const several = verifyLines(
      [
        [...one, forged(real, 'A')],
        [...two, forged(real, 'B'), forged(real, 'C')],
      ],
      options,
    );
    const found = kindsOf(several).filter((kind) => kind.endsWith('foreign'));
    t.same(found, [`1:${one.length + 1} foreign`, `2:${two.length + 1} foreign`, `2:${two.length + 2} foreign`], what);
    t.notOk(
      verifyLines([[forged(real, 'A'), ...two.slice(6)]], options).intact,
      `before a start that names another previous line ${what}`,
    );
    t.notOk(verifyLines([[forged(real, 'A'), ...one.slice(2)], two], options).intact, `before an excerpt ${what}`);
  }
});

t.test('a log excerpt with a single line of a process causes no false alarm', async (t) => {
  const directory = t.testdir();
  const part = (lines: readonly string[], running = false): Verdict => verifyLines([lines], { partial: true, running });
  const [one, two] = (await sampleLog(directory)).map(linesOf) as [string[], string[]];
  t.ok(part([one[3] ?? ''], true).intact, 'one line alone');
  t.ok(part([...one, ...two].slice(13)).intact, 'the end of one process, and all of the next');

  const file = `${directory}/killed.log`;
  const killed = openLog(file);
  killed.write(requestLine());
  const lineCount = (): number => linesOf(readFileSync(file)).length;
  await until(() => lineCount() === 2);
  const next = openLog(file);
  next.write(requestLine());
  await until(() => lineCount() === 4);
  const lines = linesOf(readFileSync(file));
  t.same(part(lines.slice(1), true).findings, [], 'the last line of a killed process, and the next process');
  const [onStream, nextOnStream] = [new Chain(testSecret, 'live'), new Chain(testSecret, 'live')];
  onStream.checkpoint('start', Date.now(), 0);
  const streamed = [onStream.seal(requestLine()).toString(), nextOnStream.checkpoint('start', 0, 0).toString()];
  t.same(part(streamed, true).findings, [], 'on standard output, where the next process records no line');
  await Promise.all([killed.close(30_000), next.close(30_000)]);
});

/** A line that looks like an accepted request of a merchant. It can be made without a secret. */
const forgedRequest = JSON.stringify({
  '@timestamp': '2026-11-20T10:00:00.000Z',
  http: { request: { id: 'forged', method: 'POST' }, response: { status_code: 201 } },
  organization: { id: 'm_victim' },
  gateway: { environment: 'live' },
  event: { action: 'api-request', code: 'accepted' },
});

async function startAndStop(file: string): Promise<void> {
  await openLog(file).close(30_000);
}

// A gateway that starts later takes the appended line for the torn line of a killed process, and states its length in
// the first line that it writes.
t.test('log forgery: a line appended while no gateway runs is an error, not a note about a torn line', async (t) => {
  const heads = ['{"service":{"ephemeral_id":"01M7WJMG35EDK4R664YCSW956W"},', '{'];
  for (const head of heads) {
    const file = `${t.testdir()}/access.log`;
    await startAndStop(file);
    appendFileSync(file, forgedRequest.replace('{', head));
    await startAndStop(file);
    for (const options of [{}, { partial: true }, { running: true }]) {
      const verdict = verify([readFileSync(file)], options);
      t.same(kindsOf(verdict), ['1:3 foreign']);
      t.same(verdict.notes, []);
    }
  }
});

t.test('log tampering: an inserted empty line is found', async (t) => {
  const [one, two] = (await sampleLog(t.testdir())).map(linesOf) as [string[], string[]];
  for (let at = 0; at <= two.length; at += 1) {
    t.ok(kindsOf(verifyLines([one, two.toSpliced(at, 0, '')])).includes(`2:${at + 1} foreign`), `at ${at + 1}`);
  }
});

// A gateway can leave an incomplete line when it reopens its file, and then writes the line again.
t.test('log forgery: an incomplete line that the next line does not repeat is found', async (t) => {
  const [one, two] = (await sampleLog(t.testdir())).map(linesOf) as [string[], string[]];
  const withPiece = (at: number, piece: string): string[] => kindsOf(verifyLines([one, two.toSpliced(at, 0, piece)]));
  const next = two[2] ?? '';
  t.same(withPiece(2, next.slice(0, 200)), []);
  for (const piece of [`${next.slice(0, 200)}!`, next.slice(1, 200), `${next.slice(0, 200)}"}}`])
    t.same(withPiece(2, piece), ['2:3 foreign'], piece);
  const start = two.findIndex((line) => line.includes('"reason":"start"'));
  const copied = (two[start] ?? '').slice(0, 200);
  t.same(withPiece(start, copied), [`2:${start + 1} foreign`], 'the process has found no incomplete line');
});

t.test('lines outside any chain are not counted as requests, and the report mentions them', async (t) => {
  const directory = t.testdir({ secret: 'a secret of the tests alone\n' });
  const file = `${directory}/access.log`;
  const log = openLog(file);
  log.write(forgedRequest.replaceAll('forged', 'genuine'));
  await log.close(30_000);
  const audit = (...args: string[]) => ran('audit', ...args);
  t.match(await audit('search', '--merchant', 'm_victim', file), { status: 0, err: '' });
  writeFileSync(file, `${readFileSync(file, 'utf8')}${forgedRequest}\n`);
  const found = await audit('search', '--merchant', 'm_victim', file);
  t.match(found.out, 'genuine');
  t.notMatch(found.out, 'forged');
  t.match(found.err, '1 line about a request is ignored, because the hash chain of the log does not contain it.');
  t.equal(
    (await audit('search', '--merchant', 'm_other', file)).err,
    'No line matches.\n',
    'a line outside any chain is reported only if it matches',
  );
  const page = `${directory}/page.html`;
  const summed = await audit('summary', '--json', '--html', page, file);
  t.match(JSON.parse(summed.out), { requests: 1, otherLines: 2, leftOutLines: 1 });
  t.match([summed.err, readFileSync(page, 'utf8')], [/ is ignored, because /, / is ignored, because /]);
  t.equal((await audit('verify', '--secret-file', `${directory}/secret`, file)).status, 1);
});

/**
 * Writes a log whose lines have the time `at`, and returns its lines. If `isKilled` is true, the last line is missing,
 * as in the log of a killed process.
 */
async function written(directory: string, name: string, at: number, isKilled: boolean): Promise<string[]> {
  const file = `${directory}/${name}`;
  const log = openLog(file, { now: () => at });
  for (let count = 0; count < 3; count += 1) log.write(requestLine({ at }));
  await log.close(30_000);
  const lines = linesOf(readFileSync(file));
  return isKilled ? lines.slice(0, -1) : lines;
}

const idOf = (number: number): string => number.toString(36).toUpperCase().padStart(26, '0');

t.test('log forgery: countless forged chains do not hide a change of a genuine one', async (t) => {
  const lines = await written(t.testdir(), 'access.log', Date.now(), false);
  const edited = lines.with(2, (lines[2] ?? '').replace('/v1/payouts', '/v1/wallets'));
  const claimed = (from: number, count: number): string[] =>
    Array.from({ length: count }, (_, index) => {
      const members = '"@timestamp":"2026-11-20T10:00:00.000Z","event":{"action":"api-request","sequence":7';
      return `{"service":{"ephemeral_id":"${idOf(from + index)}"},${members},"hash":"${'0'.repeat(64)}"}}`;
    });
  const many = 60_000;
  const verdict = verifyLines([
    [...claimed(0, many), ...edited.slice(0, 2), ...claimed(many, many), ...edited.slice(2)],
  ]);
  // Each of the 2 * many forged chains has two findings: it lacks its start, and no line of it is proved. The genuine
  // chain has two: the edit, and the lines in front of it, which its process did not find in the file.
  t.equal(verdict.findingCount, 2 * 2 * many + 2);
  t.equal(kindsOf(verdict).filter((kind) => kind.endsWith(' edited')).length, 1, 'and the edit is reported');
  t.ok(verdict.chains.length <= 100_000);
  t.match(
    verdict.chains.find(({ lines }) => lines > 1),
    { edited: 1, proved: lines.length - 1 },
    'the genuine chain is still checked',
  );
});

t.test('--running does not excuse a truncated chain that ended long ago', async (t) => {
  const directory = t.testdir();
  const now = Date.parse('2026-11-20T10:00:00Z');
  const newest = await written(directory, 'new.log', now, true);
  for (const [minutes, expected] of [
    [2, []],
    [10, ['old:4 truncated']],
  ] as const) {
    const old = await written(directory, `${minutes}.log`, now - minutes * 60_000, true);
    const verdict = verifyLines([old, newest], { running: true, partial: true }, ['old', 'new']);
    t.same(kindsOf(verdict), expected, `its last line is ${minutes} minutes older than the newest log`);
  }
});

t.test('a compressed log whose second member is disguised as padding is rejected as damaged', async (t) => {
  const directory = t.testdir();
  const lines = await written(directory, 'access.log', Date.now(), false);
  const parts = [lines.slice(0, 2), lines.slice(2)].map((part) => gzipSync(`${part.join('\n')}\n`));
  const [first, second] = parts as [Buffer, Buffer];
  const read = async (name: string, contents: Buffer): Promise<number> => {
    writeFileSync(`${directory}/${name}`, contents);
    let count = 0;
    for await (const some of readLogLines([`${directory}/${name}`])) count += some.length;
    return count;
  };
  t.equal(await read('whole.gz', Buffer.concat(parts)), lines.length);
  second[0] = 0;
  await t.rejects(
    read('damaged.gz', Buffer.concat([first, second])),
    /damaged\.gz cannot be read: it is damaged in the middle/,
  );
  t.same(kindsOf(verify([Buffer.from(`${lines.join('\n')}\n`)])), []);
});

t.test('log truncation: a chain cut off after the line that another process recorded is found', async (t) => {
  const file = `${t.testdir()}/access.log`;
  const lines = (): string[] => linesOf(readFileSync(file));
  const writeAll = async (log: ReturnType<typeof openLog>, count: number): Promise<void> => {
    const before = lines().length;
    for (let written = 0; written < count; written += 1) log.write(requestLine());
    await until(() => lines().length === before + count);
  };
  const first = openLog(file);
  await until(() => readFileSync(file).length > 0);
  await writeAll(first, 4);
  const second = openLog(file);
  await until(() => lines().length === 6);
  await writeAll(first, 3);
  await writeAll(second, 2);
  await first.close(30_000);
  await second.close(30_000);
  const whole = lines();
  t.same([verifyLines([whole]).intact, whole.length], [true, 13], 'two processes on one file');

  const { ephemeral_id: id } = (JSON.parse(whole[0] ?? '') as { service: { ephemeral_id: string } }).service;
  const linesOfFirst = whole.flatMap((line, index) =>
    index > 5 && line.startsWith(`{"service":{"ephemeral_id":"${id}"`) ? [index] : [],
  );
  t.equal(linesOfFirst.length, 4);
  for (let left = 1; left < linesOfFirst.length; left += 1) {
    const removed = linesOfFirst.slice(left);
    const cut = verifyLines([whole.filter((_, index) => !removed.includes(index))]);
    t.same(kindsOf(cut), [`1:${6 + left} truncated`], `${left} of the later lines are left`);
  }
  const killed = verifyLines([whole.filter((_, index) => !linesOfFirst.includes(index))]);
  t.ok(killed.intact, 'it looks like a killed process, whose last line the other process recorded');
});

// A log secret was replaced because it had leaked. Older chains are still verified under the old secret, so the
// verifier gets both. But a chain that began under the new secret must not continue under the old one.

t.test('a leaked older log secret cannot extend a chain that began under a newer secret', async (t) => {
  const file = `${t.testdir()}/access.log`;
  await openLog(file).close(30_000);
  const renewed = logSecretOf(Buffer.from('the next secret of the tests'));
  const secrets = [renewed, testSecret];
  const log = openLog(file, { secret: renewed });
  for (let count = 0; count < 4; count += 1) log.write(requestLine({ code: 'key_unknown' }));
  await log.close(30_000);
  const lines = linesOf(readFileSync(file));
  t.same([verifyLines([lines], { secrets }).intact, lines.length], [true, 8]);

  const from = 4; // the second request of the second process
  const forged = lines.slice(0, from);
  for (const line of lines.slice(from)) {
    const text = line.replace('key_unknown', 'accepted').slice(0, -76);
    const previous = (JSON.parse(forged.at(-1) ?? '') as { event: { hash: string } }).event.hash;
    const hash = createHmac('sha256', testSecret).update(previous).update(text).digest('hex');
    forged.push(`${text},"hash":"${hash}"}}`);
  }
  const [first] = kindsOf(verifyLines([forged], { secrets }));
  t.equal(first, `1:${from + 1} edited`);
});

t.test('log forgery: a chain as of signed checkpoints does not replace one under the secret', async (t) => {
  const lines = await written(t.testdir(), 'access.log', Date.now(), false);
  const forged = rehashed(
    lines.map((line) => line.replace('"hmac-sha256"', '"rfc6962-sha256"').replace('/v1/payouts', '/v1/forged')),
  );
  t.same(kindsOf(verifyLines([lines])), []);
  t.same(kindsOf(verifyLines([forged])), ['1:5 unkeyed']);
  t.same(kindsOf(verifyLines([forged], { running: true })), ['1:5 unkeyed']);
  const part = verifyLines([forged.slice(1)], { partial: true });
  t.same(kindsOf(part), ['1:4 unkeyed'], 'also where no line names the algorithm first');
  const { intact, notes } = verifyLines([forged], { signsCheckpoints: true });
  t.match([intact, notes], [true, [/detects accidental damage but not attacks: add --checkpoints and --public-key$/]]);
});
