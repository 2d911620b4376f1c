import path from 'node:path';

/**
 * What runs the built product with these arguments, as an operator's shell does: for `spawn`. The test runner has each child process
 * load its instrumentation through NODE_OPTIONS, which on Node 20 is most of the time that a process takes to start; `env` takes it
 * out and becomes the process, so that the pid is the product's own.
 * @param root where it was built
 */
export function productCommand(
  args: readonly string[],
  nodeArgs: readonly string[] = [],
  root = '.',
): [string, string[]] {
  const main = path.resolve(root, 'dist/cli/main.js');
  return ['env', ['-u', 'NODE_OPTIONS', process.execPath, ...nodeArgs, main, ...args]];
}

/** The same for a process whose files may become so large and no larger, as on a full disk. */
export function limitedCommand(mostFileKibibytes: number, args: readonly string[]): [string, string[]] {
  const [command, own] = productCommand(args);
  return ['bash', ['--norc', '-c', `ulimit -f ${mostFileKibibytes}; exec "$0" "$@"`, command, ...own]];
}

/** The options with which a part begins in a new installation: those with a database make it. */
export function newInstallation(command: string): string[] {
  return command === 'registry' || command === 'services' ? ['--create'] : [];
}
