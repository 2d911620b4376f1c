import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';

/**
 * The command for `spawn` that runs the built product as an operator's shell does.
 * @param root the directory of the build
 */
export function productCommand(
  args: readonly string[],
  nodeArgs: readonly string[] = [],
  root = '.',
): [string, string[]] {
  const main = path.resolve(root, 'dist/cli/main.js');
  return [process.execPath, [...nodeArgs, main, ...args]];
}

/** Like `productCommand`, with a limit on the size of files, to simulate a full disk. */
export function limitedCommand(mostFileKibibytes: number, args: readonly string[]): [string, string[]] {
  const [command, own] = productCommand(args);
  return ['bash', ['--norc', '-c', `ulimit -f ${mostFileKibibytes}; exec "$0" "$@"`, command, ...own]];
}

/** The options for the first start of a part: a part with a database creates the database. */
export function newInstallation(command: string): string[] {
  return command === 'registry' || command === 'services' ? ['--create'] : [];
}

/**
 * Kills a process at the end of a test, and waits until it has ended. Otherwise it could add files to the test's
 * directory while the test runner removes it.
 */
export function killAtEnd(t: { teardown(handler: () => unknown): void }, child: ChildProcess): void {
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  });
}
