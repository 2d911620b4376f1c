import { execFileSync } from 'node:child_process';
import { closeSync, openSync, utimesSync, writeFileSync } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { UnansweredFiles } from '../../src/telemetry/checkpoints/unanswered-files.js';
import { uniqueId } from '../../src/telemetry/unique-id.js';

const refreshMilliseconds = 20;
const threads = Number(process.env.UV_THREADPOOL_SIZE ?? 4);

/**
 * Blocks all asynchronous file operations of this process. So no other test is in this file.
 * @param pipe a new named pipe: opening it for reading blocks a thread until somebody opens it for writing
 * @returns a function that ends the blocking
 */
function hangFileSystem(pipe: string): () => Promise<void> {
  execFileSync('mkfifo', [pipe]);
  const opening = Array.from({ length: threads }, () => open(pipe));
  return async () => {
    const writing = openSync(pipe, 'r+');
    const handles = await Promise.all(opening);
    closeSync(writing);
    await Promise.all(handles.map((handle) => handle.close()));
  };
}

t.test('a file that was touched while the file system hung is left to its process', async (t) => {
  const folder = t.testdir();
  const file = `${folder}/checkpoints.jsonl.${uniqueId()}.unanswered.live`;
  const touch = (): void => {
    utimesSync(file, new Date(), new Date());
  };
  writeFileSync(file, '["a checkpoint"]');
  const files = new UnansweredFiles(`${folder}/checkpoints.jsonl`, 1_000, refreshMilliseconds);
  t.teardown(() => files.release());
  const endHang = hangFileSystem(`${folder}/pipe`);
  let isHanging = true;
  void stat(folder).then(() => (isHanging = false));
  for (let interval = 0; interval < 20; interval += 1) {
    await wait(refreshMilliseconds);
    touch();
  }
  t.ok(isHanging);
  const [former] = await Promise.all([files.take(null), endHang()]);
  t.same(former, []);

  let taken = await files.take(null);
  for (; taken.length === 0; taken = await files.take(null)) await wait(refreshMilliseconds);
  t.same(taken[0]?.submissions, ['a checkpoint'], 'it is taken once nobody touches it any more');
});
