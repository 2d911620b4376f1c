import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import pg from 'pg';
import type { Test } from 'tap';
import { freePort } from '../adapters/redis-server.js';
import { until } from '../registry/manual-time.js';

const debian = '/usr/lib/postgresql';
const [newest = ''] = existsSync(debian)
  ? readdirSync(debian).toSorted((one, other) => Number(other) - Number(one))
  : [];
const bin = path.join(debian, newest, 'bin');

/** Test options for a test that kills a PostgreSQL server. */
export const ownPostgresAlone = {
  skip: existsSync(path.join(bin, 'initdb')) ? false : `no ${bin}/initdb: NO PostgreSQL IS KILLED`,
};

/**
 * The user that runs PostgreSQL; empty: the current user. PostgreSQL refuses to run as root, so root lets the
 * unprivileged user of Debian's package run it.
 */
const identity: { uid?: number; gid?: number } = userInfo().uid === 0 ? ids('postgres') : {};

function ids(user: string): { uid: number; gid: number } {
  const [uid = 0, gid = 0] = ['-u', '-g'].map((flag) => Number(spawnSync('id', [flag, user]).stdout.toString()));
  return { uid, gid };
}

/** A PostgreSQL server for one test, which the test can kill. */
export interface OwnPostgres {
  readonly url: string;
  /** Kills the server (SIGKILL) and restarts it; recovery restores all committed data. */
  crash(): Promise<void>;
  /** Terminates every other client connection to the server. */
  endConnections(): Promise<void>;
}

/** Starts a server with an empty database and removes both after the test. */
export async function startOwnPostgres(t: Test): Promise<OwnPostgres> {
  const directory = mkdtempSync(path.join(tmpdir(), 'merchant-gateway-postgres-'));
  const data = path.join(directory, 'data');
  const { uid, gid } = identity;
  if (uid !== undefined && gid !== undefined) chownSync(directory, uid, gid);
  const made = spawnSync(
    path.join(bin, 'initdb'),
    ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-sync'],
    identity,
  );
  if (made.status !== 0) throw new Error(made.stderr.toString());
  const port = await freePort();
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const running: { server: ChildProcess | null } = { server: null };

  async function start(): Promise<void> {
    const settings = [`port=${port}`, 'listen_addresses=127.0.0.1', `unix_socket_directories=${directory}`];
    const args = ['-D', data, ...settings.flatMap((one) => ['-c', one])];
    let written = '';
    const server = spawn(path.join(bin, 'postgres'), args, { ...identity, stdio: ['ignore', 'ignore', 'pipe'] });
    server.stderr.on('data', (chunk: Buffer) => (written = (written + chunk.toString()).slice(-10_000)));
    running.server = server;
    endWithThisProcess(server);
    await until(async () => {
      if (server.exitCode !== null) throw new Error(`PostgreSQL ended: ${written}`);
      return ask(url, 'select 1');
    });
  }

  async function kill(): Promise<void> {
    const { server } = running;
    if (server?.exitCode !== null || server.signalCode !== null) return;
    const ended = once(server, 'exit');
    server.kill('SIGKILL');
    await ended;
  }

  t.teardown(async () => {
    await kill();
    rmSync(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  });
  await start();
  return {
    url,
    crash: async () => {
      await kill();
      for (let attempt = 1; ; attempt += 1) {
        try {
          await start();
          return;
        } catch (error) {
          // The children of the killed postmaster hold its shared memory until each has noticed the kill.
          if (attempt === 100) throw error;
          await wait(100);
        }
      }
    },
    endConnections: async () => {
      await ask(
        url,
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'",
      );
    },
  };
}

/**
 * Kills the server when this process ends for any reason. Even a test timeout, which runs no teardown, closes the pipe
 * to the guard, and the guard then kills the server.
 */
function endWithThisProcess(server: ChildProcess): void {
  const script = 'cat > /dev/null; kill -9 "$0"';
  const guard = spawn('sh', ['-c', script, String(server.pid)], { ...identity, stdio: ['pipe', 'ignore', 'ignore'] });
  server.once('exit', () => guard.kill('SIGKILL'));
}

/** Runs a statement; returns false if the connection or the statement fails. */
async function ask(url: string, statement: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 1000 });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query(statement);
    return true;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => undefined);
  }
}
