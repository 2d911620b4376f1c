import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t from 'tap';
import { killAtEnd, productCommand } from '../product-command.js';

/** Whether the printed curl commands can be run on this machine. */
export const hasCurl = spawnSync('curl', ['--version']).status === 0;

/** A directory for the files of a test file. It is removed at the end of the test file. */
export const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-cli-'));
t.teardown(() => rm(directory, { recursive: true, force: true }));

/**
 * A configuration with free ports, so that tests do not collide. `reasonFor` makes the registry require a reason for
 * some changes, also from `dev` itself.
 */
export const freePorts = path.join(directory, 'free-ports.yaml');
await writeFile(
  freePorts,
  `listen:
  https: { port: 0 }
  http: { port: 0 }
  management: { port: 0 }
registry: { listen: { port: 0 }, reasonFor: [keys:create, keys:revoke, tokens:own] }
services: { listen: { port: 0 } }
`,
);

/** A running `dev`. */
export interface Run {
  readonly child: ChildProcessWithoutNullStreams;
  /** The instructions, which `dev` prints once it accepts requests. */
  readonly welcome: string;
  output(): string;
  /** Sends a signal; resolves with the exit status. */
  end(signal: NodeJS.Signals): Promise<number | null>;
}

/** Starts `dev` with free ports; resolves once it has printed its instructions. */
export async function startDev(
  t: { teardown(handler: () => unknown): void },
  args: readonly string[] = [],
  env: Record<string, string> = {},
): Promise<Run> {
  const command = productCommand(['dev', '--config', freePorts, ...args]);
  const child = spawn(...command, { stdio: 'pipe', env: { ...process.env, ...env } });
  killAtEnd(t, child);
  let output = '';
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const exited = once(child, 'exit');
  await new Promise<void>((resolve, reject) => {
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      if (/Send a request without a key[^]*curl .*\n|^\{"baseUrl".*\}\n/m.test(output)) resolve();
    });
    void exited.then(() => {
      reject(new Error(`dev ended: ${output}`));
    });
  });
  return {
    child,
    welcome: output,
    output: () => output,
    end: async (signal) => {
      child.kill(signal);
      const [status] = (await exited) as [number | null];
      return status;
    },
  };
}

/** The printed curl commands. */
export function curlLines(welcome: string): string[] {
  return welcome.split('\n').filter((line) => line.startsWith('curl '));
}

/** Runs a line in a shell; resolves with the response status and body. */
export async function paste(line: string, env: Record<string, string> = {}): Promise<{ status: number; body: string }> {
  const shell = spawn('sh', ['-c', line], { env: { ...process.env, ...env } });
  let output = '';
  shell.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
  await once(shell, 'close');
  const [head = '', body = ''] = output.split('\r\n\r\n');
  return { status: Number(head.split(' ')[1]), body };
}
