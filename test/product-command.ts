import path from 'node:path';

/**
 * What runs the built product with these arguments, as an operator's shell does: for `spawn`. The test runner has each child process
 * load its instrumentation through NODE_OPTIONS, which on Node 20 is most of the time that a process takes to start; `env` takes it
 * out and becomes the process, so that the pid is the product's own.
 */
export function productCommand(args: readonly string[], nodeArgs: readonly string[] = []): [string, string[]] {
  return ['env', ['-u', 'NODE_OPTIONS', process.execPath, ...nodeArgs, path.resolve('dist/cli/main.js'), ...args]];
}
