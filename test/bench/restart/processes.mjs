// The processes of a benchmark, in a directory that is removed with them.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const directory = mkdtempSync(path.join(tmpdir(), 'merchant-gateway-restart-'));
const children = new Set();

export const inDirectory = (name) => path.join(directory, name);

/** A free port below the ephemeral range, so that no outgoing connection takes it meanwhile. */
export async function freePort() {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    const server = net.createServer().listen(port, '127.0.0.1');
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    );
    await new Promise((resolve) => server.close(resolve));
    if (isFree) return port;
  }
}

export function start(command, args) {
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit'], cwd: process.cwd() });
  children.add(child);
  child.once('exit', () => children.delete(child));
  return child;
}

export async function until(what, condition) {
  const end = Date.now() + 60_000;
  while (!(await condition().catch(() => false))) {
    if (Date.now() > end) throw new Error(`${what} did not come`);
    await sleep(20);
  }
}

/** Ends all processes and removes their files. */
export async function endProcesses(signal = 'SIGTERM') {
  const ends = [...children].map((child) => once(child, 'exit'));
  for (const child of children) child.kill(signal);
  await Promise.all(ends);
  rmSync(directory, { recursive: true, force: true });
}
