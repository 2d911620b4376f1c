import { readFileSync } from 'node:fs';
import t from 'tap';
import { requestLine } from '../audit/sample-log.js';
import { kindsOf, linesOf, verifyLines } from '../audit/verify-log.js';
import { openLog, until } from '../telemetry/open-log.js';

t.test('a chain that went on behind the line that another process named is missed where it is cut off', async (t) => {
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
  const ofFirst = whole.flatMap((line, index) =>
    index > 5 && line.startsWith(`{"service":{"ephemeral_id":"${id}"`) ? [index] : [],
  );
  t.equal(ofFirst.length, 4);
  for (let left = 1; left < ofFirst.length; left += 1) {
    const gone = ofFirst.slice(left);
    const cut = verifyLines([whole.filter((_, index) => !gone.includes(index))]);
    t.same(kindsOf(cut), [`1:${6 + left} truncated`], `${left} of the lines behind are left`);
  }
  const killed = verifyLines([whole.filter((_, index) => !ofFirst.includes(index))]);
  t.ok(killed.intact, 'as one that was killed looks: the other process names its last line');
});
