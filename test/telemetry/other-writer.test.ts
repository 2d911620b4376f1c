import { appendFileSync, existsSync, renameSync, statSync, truncateSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import type { ChainedLog } from '../../src/telemetry/chained-log.js';
import { FileGrowth } from '../../src/telemetry/log-file.js';
import { openLog, until } from './open-log.js';

const entry = JSON.stringify({ url: { path: '/payouts' }, event: { code: 'accepted' } });

interface Watched {
  readonly log: ChainedLog;
  readonly warnings: () => number;
}

/** A log that checks its file every 2 ms. */
function watched(file: string): Watched {
  let warnings = 0;
  const log = openLog(file, { renameMilliseconds: 2, onOtherWriter: () => (warnings += 1) });
  return { log, warnings: () => warnings };
}

t.test('when two processes write to one file, each reports it once', async (t) => {
  const file = path.join(t.testdir(), 'access.log');
  const first = watched(file);
  const second = watched(file);
  await until(() => first.log.foreignBytes() > 0);
  for (let count = 0; count < 3; count += 1) {
    const before = second.log.foreignBytes();
    first.log.write(entry);
    await until(() => second.log.foreignBytes() > before);
  }
  t.same([first.warnings(), second.warnings()], [1, 1]);
  await Promise.all([first.log.close(30_000), second.log.close(30_000)]);
});

t.test('each byte of another process is counted once, and no own byte is', async (t) => {
  const file = path.join(t.testdir(), 'access.log');
  appendFileSync(file, 'what stood there before\n');
  const { log } = watched(file);
  for (let count = 0; count < 50; count += 1) {
    log.write(entry);
    appendFileSync(file, 'x'.repeat(10));
    const expected = (count + 1) * 10;
    await until(() => log.foreignBytes() >= expected);
    t.equal(log.foreignBytes(), expected);
  }
  await log.close(30_000);
});

t.test('own lines, rotation and copytruncate are not taken for another process', async (t) => {
  const file = path.join(t.testdir(), 'access.log');
  const { log, warnings } = watched(file);
  for (let round = 0; round < 30; round += 1) {
    for (let count = 0; count < 200; count += 1) log.write(entry);
    if (round % 3 === 0) await until(() => log.heldBytes() === 0);
    if (round % 2 === 0) truncateSync(file);
    else {
      renameSync(file, `${file}.${round}`);
      await until(() => existsSync(file));
    }
  }
  await until(() => log.heldBytes() === 0 && statSync(file).size > 0);
  t.same([log.foreignBytes(), warnings()], [0, 0]);
  await until(() => {
    appendFileSync(file, 'x');
    return warnings() > 0;
  });
  await log.close(30_000);
});

t.test('bytes whose write is in flight may or may not be in the file size', (t) => {
  const growth = new FileGrowth(100);
  t.equal(growth.foreignBytes(100, 0, 50), 0);
  t.equal(growth.foreignBytes(130, 0, 50), 0);
  t.equal(growth.foreignBytes(157, 50, 50), 7);
  t.equal(growth.foreignBytes(157, 50, 50), 0, 'reported once');
  t.equal(growth.foreignBytes(20, 60, 80), 0, 'truncated, and written since');
  t.equal(growth.foreignBytes(40, 80, 80), 0);
  t.equal(growth.foreignBytes(41, 80, 80), 1);
  t.end();
});
