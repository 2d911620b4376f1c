import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { availableParallelism } from 'node:os';
import { setTimeout as wait } from 'node:timers/promises';
import type { Teardowns } from '../deployment.js';

const startSeconds = 60;
const lookMilliseconds = 20;
const mostPrinted = 10_000;
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
  /** What of its environment is not as here. */
  readonly env?: NodeJS.ProcessEnv;
  /** Runs on the CPU of the subjects. */
  readonly isSubject: boolean;
  /** What it prints when it has started, or the port that it listens on then. */
  readonly started: RegExp | number;
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
  const env = { ...process.env, NODE_OPTIONS: '', ...program.env };
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], env });
  t.teardown(() => end(child));
  const name = program.args.find((arg) => !arg.startsWith('-')) ?? program.command;
  const found = await untilStarted(child, program.started, name);
  return { pid: child.pid ?? 0, found };
}

/** What a regular expression found in what was printed; empty where a port was waited for. */
async function untilStarted(child: ChildProcess, started: RegExp | number, name: string): Promise<string> {
  let printed = '';
  for (const output of [child.stdout, child.stderr]) {
    // Read to the end, or the program would wait for its reader.
    output?.on('data', (chunk: Buffer) => (printed = (printed + chunk.toString()).slice(-mostPrinted)));
  }
  const closed = once(child, 'close').then(() => 'ended');
  const deadline = performance.now() + startSeconds * 1000;
  for (;;) {
    const outcome = await Promise.race([closed, wait(lookMilliseconds)]);
    if (outcome === 'ended') throw new Error(`${name} ended: ${printed}`);
    if (performance.now() > deadline) throw new Error(`${name} did not start: ${printed}`);
    const found = typeof started === 'number' ? await knock(started) : (started.exec(printed)?.[1] ?? null);
    if (found !== null) return found;
  }
}

/** Empty where something listens, null where nothing does. */
async function knock(port: number): Promise<'' | null> {
  const socket = net.connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return '';
  } catch {
    return null;
  } finally {
    socket.destroy();
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const ended = once(child, 'exit');
  const byForce = setTimeout(() => child.kill('SIGKILL'), 3000);
  child.kill('SIGTERM');
  await ended;
  clearTimeout(byForce);
}
