import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Test } from 'tap';
import { productCommand } from '../product-command.js';

/** Starts the services as a process that the test can kill, behind a stable port. */
export async function startKillableServices(t: Test, databaseUrl: string) {
  // Not the test's own folder, which may contain the database.
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-services-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const config = path.join(directory, 'config.yaml');
  await writeFile(
    config,
    `services:
  listen: { port: 0 }
  database: { url: "${databaseUrl}", connectTimeoutSeconds: 60, statementTimeoutSeconds: 600 }
  bank: { delaySeconds: 1 }
`,
  );
  const running: { child: ChildProcess | null; port: number } = { child: null, port: 0 };
  t.teardown(() => running.child?.kill('SIGKILL'));
  const door = net.createServer((socket) => {
    const through = net.connect(running.port, '127.0.0.1');
    for (const [one, other] of [
      [socket, through],
      [through, socket],
    ] as const) {
      one.pipe(other);
      one.on('error', () => other.destroy());
      one.on('close', () => other.destroy());
    }
  });
  door.listen(0, '127.0.0.1');
  await once(door, 'listening');
  t.teardown(() => door.close());

  async function start(): Promise<void> {
    const child = spawn(...productCommand(['services', '--create', '--config', config]), {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    running.child = child;
    running.port = await new Promise<number>((resolve, reject) => {
      let log = '';
      child.stderr.on('data', (chunk: Buffer) => {
        log = (log + chunk.toString()).slice(-10_000);
        const port = /"url":"http:\/\/127\.0\.0\.1:(\d+)"/.exec(log)?.[1];
        if (port !== undefined) resolve(Number(port));
      });
      child.once('exit', () => {
        reject(new Error(`the services ended: ${log}`));
      });
    });
  }
  async function kill(): Promise<void> {
    const { child } = running;
    if (child === null) return;
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }
  await start();
  return { url: `http://127.0.0.1:${(door.address() as AddressInfo).port}`, start, kill };
}
