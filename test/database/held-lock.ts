import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

const program = `
  const database = new (require('libsql'))(process.argv[1]);
  database.exec('begin exclusive');
  console.log('held');
  process.stdin.resume().on('end', () => database.exec('rollback'));
`;

/**
 * Starts a process that holds the exclusive lock of an SQLite file. `release` of the result releases the lock, and
 * resolves once the process has ended.
 */
export async function holdLock(t: { teardown(end: () => unknown): void }, url: string) {
  const path = url.replace(/^sqlite:/, '');
  const holder = spawn(process.execPath, ['-e', program, path], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.teardown(() => holder.kill());
  const ended = once(holder, 'exit');
  await once(createInterface(holder.stdout), 'line');
  return {
    release: async () => {
      holder.stdin.end();
      await ended;
    },
  };
}
