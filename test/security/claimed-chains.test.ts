import { readFileSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import { readLogLines } from '../../src/audit/log-lines.js';
import { requestLine } from '../audit/sample-log.js';
import { kindsOf, linesOf, verify, verifyLines } from '../audit/verify-log.js';
import { openLog } from '../telemetry/open-log.js';

/** Writes a log at a time, without its end where its process was killed. */
async function written(directory: string, name: string, at: number, isKilled: boolean): Promise<string[]> {
  const file = `${directory}/${name}`;
  const log = openLog(file, { now: () => at });
  for (let count = 0; count < 3; count += 1) log.write(requestLine({ at }));
  await log.close(30_000);
  const lines = linesOf(readFileSync(file));
  return isKilled ? lines.slice(0, -1) : lines;
}

const idOf = (number: number): string => number.toString(36).toUpperCase().padStart(26, '0');

t.test('made-up chains without number hide no change of a true one', async (t) => {
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
  // Each made-up chain is headless, and proved by nothing; the true one begins behind lines that its process had not found.
  t.equal(verdict.findingCount, 2 * 2 * many + 2);
  t.equal(kindsOf(verdict).filter((kind) => kind.endsWith(' edited')).length, 1, 'and the edit is named');
  t.ok(verdict.chains.length <= 100_000);
  t.match(
    verdict.chains.find(({ lines }) => lines > 1),
    { edited: 1, proved: lines.length - 1 },
    'the true chain is checked all the while',
  );
});

t.test('--running excuses no chain that ended long ago', async (t) => {
  const directory = t.testdir();
  const now = Date.parse('2026-11-20T10:00:00Z');
  const newest = await written(directory, 'new.log', now, true);
  for (const [minutes, expected] of [
    [2, []],
    [10, ['old:4 truncated']],
  ] as const) {
    const old = await written(directory, `${minutes}.log`, now - minutes * 60_000, true);
    const verdict = verifyLines([old, newest], { running: true, partial: true }, ['old', 'new']);
    t.same(kindsOf(verdict), expected, `it was written ${minutes} minutes before`);
  }
});

t.test('a packed file whose second part was made to look like padding is not read as whole', async (t) => {
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
    /damaged\.gz cannot be read: a part of it is damaged/,
  );
  t.same(kindsOf(verify([Buffer.from(`${lines.join('\n')}\n`)])), []);
});
