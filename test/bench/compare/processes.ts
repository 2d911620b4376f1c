import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { availableParallelism } from 'node:os';
import { setTimeout as wait } from 'node:timers/promises';
import type { Teardowns } from '../../deployment/teardowns.js';

const startSeconds = 60;
const pollMilliseconds = 20;
const mostPrinted = 10_000;
/** CPU numbers: load, upstream and Redis run on the first CPU, the measured subject on the second. */
const cpus = { load: '0', subject: '1' };

/** The reason why subjects cannot have a dedicated CPU on this machine; null if they can. */
export const notPinned: string | null =
  availableParallelism() < 2
    ? 'this machine has one CPU'
    : spawnSync('taskset', ['--version']).status === 0
      ? null
      : 'taskset is not installed (Debian: util-linux)';

/** Pins this process (the load) and its future children to the load's CPU. */
export function pinLoad(): void {
  if (notPinned === null) spawnSync('taskset', ['--all-tasks', '--pid', '--cpu-list', cpus.load, `${process.pid}`]);
}

/** A program that runs until the teardown. */
export interface Program {
  readonly command: string;
  readonly args: readonly string[];
  /** Environment variables that differ from those of this process. */
  readonly env?: NodeJS.ProcessEnv;
  /** Whether it runs on the CPU of the subjects. */
  readonly isSubject: boolean;
  /** The text that it prints once started, or the port on which it then listens. */
  readonly started: RegExp | number;
}

/** A running program, and the first group that `started` matched in its output. */
export interface Running {
  readonly pid: number;
  readonly found: string;
}

/** Starts a program and waits until `started` matches its output or its port accepts connections. */
export async function startProgram(t: Teardowns, program: Program): Promise<Running> {
  const line = [program.command, ...program.args];
  const pinned = program.isSubject && notPinned === null ? ['taskset', '--cpu-list', cpus.subject, ...line] : line;
  const [command = '', ...args] = pinned;
  // Clear NODE_OPTIONS: the Node options of this process are not meant for the program.
  const env = { ...process.env, NODE_OPTIONS: '', ...program.env };
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], env });
  t.teardown(() => end(child));
  const name = program.args.find((arg) => !arg.startsWith('-')) ?? program.command;
  const found = await untilStarted(child, program.started, name);
  return { pid: child.pid ?? 0, found };
}

/** Waits for the start; returns the first group of the regular expression, or an empty text for a port. */
async function untilStarted(child: ChildProcess, started: RegExp | number, name: string): Promise<string> {
  let printed = '';
  for (const output of [child.stdout, child.stderr]) {
    // Read all output: a full pipe would block the program.
    output?.on('data', (chunk: Buffer) => (printed = (printed + chunk.toString()).slice(-mostPrinted)));
  }
  const closed = once(child, 'close').then(() => 'ended');
  const deadline = performance.now() + startSeconds * 1000;
  for (;;) {
    const outcome = await Promise.race([closed, wait(pollMilliseconds)]);
    if (outcome === 'ended') throw new Error(`${name} ended: ${printed}`);
    if (performance.now() > deadline) throw new Error(`${name} did not start: ${printed}`);
    const found = typeof started === 'number' ? await knock(started) : (started.exec(printed)?.[1] ?? null);
    if (found !== null) return found;
  }
}

/** Returns an empty text if a process listens on the port, otherwise null. */
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
