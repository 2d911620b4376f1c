import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir, userInfo } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import type { Test } from 'tap';
import { freePort } from '../adapters/redis-server.js';
import { until } from '../registry/manual-time.js';
import { createPostgresDatabase, postgresAlone } from './each-database.js';

const isInstalled = spawnSync('pgbouncer', ['--version']).status === 0;
const missing = 'pgbouncer is not installed: NOTHING ABOUT POOLERS IS TESTED';

/** Test options for a test with a pooler in front of PostgreSQL. */
export const poolerAlone = isInstalled ? postgresAlone : { skip: missing };

/** A PgBouncer for one test, in front of an empty PostgreSQL database. */
export interface PgBouncer {
  readonly url: string;
  /** The URL of the same database without the pooler. */
  readonly direct: string;
}

export async function startPgBouncer(t: Test, settings: readonly string[]): Promise<PgBouncer> {
  const direct = await createPostgresDatabase(t);
  const { hostname, port: serverPort, username, password } = new URL(direct);
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-pgbouncer-'));
  await chmod(directory, 0o755);
  const port = await freePort();
  const secret = password === '' ? '' : ` password=${decodeURIComponent(password)}`;
  const file = path.join(directory, 'pgbouncer.ini');
  const server = `host=${hostname} port=${serverPort || '5432'} user=${decodeURIComponent(username)}${secret}`;
  const listening = [`listen_addr = 127.0.0.1`, `listen_port = ${port}`, 'unix_socket_dir =', 'auth_type = any'];
  await writeFile(file, ['[databases]', `* = ${server}`, '[pgbouncer]', ...listening, ...settings, ''].join('\n'));
  // PgBouncer refuses to run as root.
  const user = userInfo().uid === 0 ? ['--user', 'nobody'] : [];
  const process = spawn('pgbouncer', [...user, file], { stdio: ['ignore', 'ignore', 'pipe'] });
  let written = '';
  process.stderr.on('data', (chunk: Buffer) => (written += chunk.toString()));
  t.teardown(async () => {
    if (process.exitCode === null && process.signalCode === null) {
      const ended = once(process, 'exit');
      process.kill('SIGKILL');
      await ended;
    }
    await rm(directory, { recursive: true, force: true });
  });
  const url = new URL(direct);
  url.hostname = '127.0.0.1';
  url.port = String(port);
  await until(async () => {
    if (process.exitCode !== null) throw new Error(`pgbouncer ended: ${written}`);
    return acceptsConnections(url.href);
  });
  return { url: url.href, direct };
}

async function acceptsConnections(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 1000 });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return true;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => undefined);
  }
}
