import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { killAtEnd, limitedCommand, newInstallation, productCommand } from '../product-command.js';

/** The parts of the product that run as separate processes. */
export type PartName = 'gateway' | 'registry' | 'services';

/** The ports of a process by listener: `https`, `http` and `management` of a gateway, `api` of the others. */
type Ports = Readonly<Record<string, number>>;

/** How a process is started. */
export interface PartOptions {
  /** The directory of its build; default: the current directory. */
  readonly root?: string;
  readonly nodeArguments?: readonly string[];
  /** Arguments in addition to the configuration. */
  readonly commandArguments?: readonly string[];
  readonly environment?: NodeJS.ProcessEnv;
  /** Whether it has an IPC channel to this process. */
  readonly hasChannel?: boolean;
  /** The limit on the size of its files, to simulate a full disk; null: no limit. */
  readonly mostFileKibibytes?: number | null;
}

/** A process of the product that has been spawned. */
interface SpawnedPart {
  readonly child: ChildProcess;
  /** Its ports, once it takes requests; rejects if it ends or does not start in time. */
  readonly ready: Promise<Ports>;
  /** The last part of its log, up to a million characters. */
  readonly log: () => string;
}

/** A process of the product that takes requests. */
export interface Part {
  readonly child: ChildProcess;
  readonly pid: number;
  readonly ports: Ports;
  /** The last part of its log, up to a million characters. */
  readonly log: () => string;
  /** Kills it, as in a crash; resolves at once if it has ended already. */
  readonly kill: () => Promise<void>;
  /** Stops it as Kubernetes does; resolves with its exit code and signal. */
  readonly stop: () => Promise<readonly [code: number | null, signal: NodeJS.Signals | null]>;
}

const startSeconds = 60;
const mostLogCharacters = 1_000_000;

/** Spawns a part of the product. */
export function spawnPart(part: PartName, configFile: string, options: PartOptions = {}): SpawnedPart {
  const { root = '.', nodeArguments = [], mostFileKibibytes = null } = options;
  // An earlier release has no `--create`: it always creates a missing database.
  const creates = path.resolve(root) === process.cwd() ? newInstallation(part) : [];
  const args = [part, ...creates, '--config', configFile, ...(options.commandArguments ?? [])];
  const [command, commandArguments] =
    mostFileKibibytes === null ? productCommand(args, nodeArguments, root) : limitedCommand(mostFileKibibytes, args);
  const child = spawn(command, commandArguments, {
    stdio: ['ignore', 'ignore', 'pipe', ...(options.hasChannel === true ? ['ipc' as const] : [])],
    env: { ...process.env, ...options.environment },
  });
  let log = '';
  const ready = new Promise<Ports>((resolve, reject) => {
    const late = setTimeout(() => {
      reject(new Error(`the ${part} did not start: ${log}`));
    }, startSeconds * 1000);
    child.once('exit', () => {
      clearTimeout(late);
      reject(new Error(`the ${part} ended: ${log}`));
    });
    child.stderr?.on('data', (chunk: Buffer) => {
      log = (log + chunk.toString()).slice(-mostLogCharacters);
      const ports = portsIn(log);
      if (ports === null) return;
      clearTimeout(late);
      resolve(ports);
    });
  });
  return { child, ready, log: () => log };
}

/** Starts a part of the product, and kills it at the end of the test. */
export async function startPart(
  t: { teardown(handler: () => unknown): void },
  part: PartName,
  configFile: string,
  options: PartOptions = {},
): Promise<Part> {
  const { child, ready, log } = spawnPart(part, configFile, options);
  killAtEnd(t, child);
  const ended = once(child, 'exit') as Promise<[number | null, NodeJS.Signals | null]>;
  const ports = await ready;
  return {
    ...{ child, pid: child.pid ?? 0, ports, log },
    kill: async () => {
      child.kill('SIGKILL');
      await ended;
    },
    stop: () => {
      child.kill('SIGTERM');
      return ended;
    },
  };
}

/** The ports that a process reports when it takes requests; null: none yet. */
function portsIn(log: string): Ports | null {
  const lines = log.slice(0, log.lastIndexOf('\n') + 1);
  const api = /"url":"https?:\/\/127\.0\.0\.1:(\d+)"/.exec(lines)?.[1];
  if (api !== undefined) return { api: Number(api) };
  const found = [
    ...lines.matchAll(/"(https|http|management)":\{"address":"127\.0\.0\.1","family":"IPv4","port":(\d+)\}/g),
  ];
  return found.length === 0 ? null : Object.fromEntries(found.map(([, name = '', port]) => [name, Number(port)]));
}
