import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';
import type { Teardowns } from '../deployment.js';

const startSeconds = 60;
/** Load, upstream and Redis on the first, what is measured on the second. */
const cpus = { load: '0', subject: '1' };

/** Why subjects cannot have a CPU of their own here; null where they can. */
export const notPinned: string | null =
  availableParallelism() < 2
    ? 'this machine has one CPU'
    : spawnSync('taskset', ['--version']).status === 0
      ? null
      : 'taskset is not installed (Debian: util-linux)';

/** Keeps this process, which is the load, and what it starts from now on, off the CPU of the subjects. */
export function pinLoad(): void {
  if (notPinned === null) spawnSync('taskset', ['--all-tasks', '--pid', '--cpu-list', cpus.load, `${process.pid}`]);
}

/** A program to run, until the teardown. */
export interface Program {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd?: string;
  /** Runs on the CPU of the subjects. */
  readonly isSubject: boolean;
  /** What it prints when it has started; null: nothing. */
  readonly started: RegExp | null;
}

/** A program that runs, and what `started` has found in what it printed. */
export interface Running {
  readonly pid: number;
  readonly found: string;
}

/** Starts a program and waits until it says that it has started. */
export async function startProgram(t: Teardowns, program: Program): Promise<Running> {
  const line = [program.command, ...program.args];
  const pinned = program.isSubject && notPinned === null ? ['taskset', '--cpu-list', cpus.subject, ...line] : line;
  const [command = '', ...args] = pinned;
  // Options of this process are not for those.
  const env = { ...process.env, NODE_OPTIONS: '' };
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], cwd: program.cwd, env });
  t.teardown(() => end(child));
  const name = program.args.find((arg) => !arg.startsWith('-')) ?? program.command;
  const found = await untilStarted(child, program.started, name);
  return { pid: child.pid ?? 0, found };
}

async function untilStarted(child: ChildProcess, started: RegExp | null, name: string): Promise<string> {
  let printed = '';
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => {
      reject(new Error(`${name} did not start: ${printed}`));
    }, startSeconds * 1000);
    const succeed = (found: string): void => {
      clearTimeout(late);
      child.stdout?.removeAllListeners('data').resume();
      child.stderr?.removeAllListeners('data').resume();
      resolve(found);
    };
    const look = (chunk: Buffer): void => {
      printed += chunk.toString();
      const match = started?.exec(printed);
      if (match) succeed(match[1] ?? '');
    };
    child.stdout?.on('data', look);
    child.stderr?.on('data', look);
    child.once('error', reject).once('exit', () => {
      clearTimeout(late);
      reject(new Error(`${name} ended: ${printed}`));
    });
    if (started === null)
      child.once('spawn', () => {
        succeed('');
      });
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const ended = once(child, 'exit');
  const byForce = setTimeout(() => child.kill('SIGKILL'), 3000);
  child.kill('SIGTERM');
  await ended;
  clearTimeout(byForce);
}
