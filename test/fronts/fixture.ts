import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir, userInfo } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Config, DeepPartial } from '../../src/config/schema.js';
import { freePort } from '../adapters/redis-server.js';
import { makeCertificate } from '../edge/certificates.js';
import type { Teardown } from '../edge/harness.js';

/** The values that replace the addresses, ports and paths in a front's configuration. */
interface Places {
  readonly directory: string;
  readonly port: number;
  readonly gateway: number;
  readonly management: number;
}

interface Started {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** The configuration of the running front. */
  readonly text: string;
}

/** A proxy from Debian with its documented configuration in docs/fronts. */
export interface FrontKind {
  readonly name: 'haproxy' | 'nginx' | 'caddy';
  readonly file: string;
  /** The reason why it cannot be tested on this machine; false if it can. */
  readonly missing: string | false;
  /** The configuration of the gateway behind it. */
  readonly gateway: DeepPartial<Config>;
  /** The status of the proxy's response if the gateway's certificate has the wrong name. */
  readonly mistrusts: 502 | 503;
  /**
   * Headers, other than `date`, that the proxy adds to its own error responses and that its configuration cannot
   * remove.
   */
  readonly ownHeaders: Readonly<Record<string, string | RegExp>>;
  /**
   * Whether a malformed request gets the JSON envelope. HAProxy, and Go's HTTP server in Caddy, send fixed responses
   * instead.
   */
  readonly envelopesMalformed: boolean;
  start(text: string, places: Places): Started;
}

function missing(command: string, ...args: string[]): string | false {
  const found = spawnSync(command, args).status === 0;
  return found ? false : `${command} is not installed: NOTHING ABOUT ${command.toUpperCase()} IN FRONT IS TESTED`;
}

/** Replaces each text; a missing text is an error. */
function replaceAll(text: string, replacements: Readonly<Record<string, string>>): string {
  return Object.entries(replacements).reduce((replaced, [from, to]) => {
    if (!replaced.includes(from)) throw new Error(`the configuration has no ${JSON.stringify(from)}`);
    return replaced.replaceAll(from, to);
  }, text);
}

const trustedProxies = ['127.0.0.1'];

export const haproxy: FrontKind = {
  name: 'haproxy',
  file: 'docs/fronts/haproxy.cfg',
  missing: missing('haproxy', '-v'),
  gateway: { trustedProxies, proxyProtocol: true },
  mistrusts: 503,
  ownHeaders: {},
  envelopesMalformed: false,
  start: (text, { directory, port, gateway, management }) => ({
    command: 'haproxy',
    args: ['-db', '-f', path.join(directory, 'configuration')],
    env: {
      FRONT_USER: userInfo().username,
      FRONT_GROUP: spawnSync('id', ['-gn'], { encoding: 'utf8' }).stdout.trim(),
      FRONT_LOG: 'stderr',
      FRONT_SOCKET: path.join(directory, 'inner.sock'),
      FRONT_LISTEN: `127.0.0.1:${port}`,
      FRONT_CERTIFICATE: path.join(directory, 'front.pem'),
      GATEWAY_ADDRESS: `127.0.0.1:${gateway}`,
      GATEWAY_MANAGEMENT_PORT: String(management),
      GATEWAY_CA: path.join(directory, 'ca.pem'),
    },
    text,
  }),
};

export const nginx: FrontKind = {
  name: 'nginx',
  file: 'docs/fronts/nginx.conf',
  missing: missing('nginx', '-v'),
  gateway: { trustedProxies },
  mistrusts: 503,
  ownHeaders: { server: 'nginx' },
  envelopesMalformed: true,
  start: (text, { directory, port, gateway }) => ({
    command: 'nginx',
    args: ['-e', 'stderr', '-g', 'daemon off;', '-c', path.join(directory, 'configuration')],
    env: {},
    text: replaceAll(text, {
      'user www-data;': `user ${userInfo().username};`,
      '/run/nginx.pid': path.join(directory, 'nginx.pid'),
      '/var/log/nginx': directory,
      '/etc/merchant-gateway/front/tls.crt': path.join(directory, 'front.crt'),
      '/etc/merchant-gateway/front/tls.key': path.join(directory, 'front.key'),
      '/etc/merchant-gateway/front/gateway-ca.pem': path.join(directory, 'ca.pem'),
      'gateway.internal:8443': `127.0.0.1:${gateway}`,
      'listen 443 ': `listen 127.0.0.1:${port} `,
    }),
  }),
};

export const caddy: FrontKind = {
  name: 'caddy',
  file: 'docs/fronts/Caddyfile',
  missing: missing('caddy', 'version'),
  gateway: { trustedProxies },
  mistrusts: 502,
  ownHeaders: { 'alt-svc': /^h3=/ },
  envelopesMalformed: false,
  start: (text, { directory, port, gateway }) => ({
    command: 'caddy',
    args: ['run', '--adapter', 'caddyfile', '--config', path.join(directory, 'configuration')],
    env: {
      HOME: directory,
      XDG_CONFIG_HOME: directory,
      XDG_DATA_HOME: directory,
      FRONT_ADMIN: `unix/${path.join(directory, 'admin.sock')}`,
      FRONT_LISTEN: `:${port}`,
      FRONT_CERTIFICATE: path.join(directory, 'front.crt'),
      FRONT_KEY: path.join(directory, 'front.key'),
      GATEWAY_ADDRESS: `127.0.0.1:${gateway}`,
      GATEWAY_CA: path.join(directory, 'ca.pem'),
    },
    text,
  }),
};

/** One CA and the certificates that it signed for the front and the gateway. */
export interface Certificates {
  readonly directory: string;
  readonly ca: string;
  /** The files for the gateway's listener. */
  readonly gateway: { readonly certFile: string; readonly keyFile: string };
}

/**
 * Creates a CA, and the certificates that it signs for a front and a gateway.
 * @param gatewayName the name in the gateway's certificate
 */
export async function makeCertificates(t: Teardown, gatewayName = 'gateway.internal'): Promise<Certificates> {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-front-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  await chmod(directory, 0o755);
  const ca = await makeCertificate({ names: ['authority'] });
  const front = await makeCertificate({ names: ['api.example'], ca });
  const gateway = await makeCertificate({ names: [gatewayName], ca });
  const files = {
    'ca.pem': ca.cert,
    'front.crt': front.cert,
    'front.key': front.key,
    'front.pem': `${front.cert.trim()}\n${front.key}`,
    'gateway.crt': gateway.cert,
    'gateway.key': gateway.key,
  };
  for (const [name, text] of Object.entries(files)) await writeFile(path.join(directory, name), text);
  const [certFile, keyFile] = [path.join(directory, 'gateway.crt'), path.join(directory, 'gateway.key')];
  return { directory, ca: ca.cert, gateway: { certFile, keyFile } };
}

/** A running front. */
export interface Front {
  readonly port: number;
  readonly ca: string;
  /** All output and logs of the front. */
  written(): Promise<string>;
}

/** Starts a front from Debian with its configuration in docs/fronts, and stops it after the test. */
export async function startFront(
  t: Teardown,
  kind: FrontKind,
  { directory, ca }: Certificates,
  gateway: { readonly https: number; readonly management: number },
): Promise<Front> {
  const port = await freePort();
  const places = { directory, port, gateway: gateway.https, management: gateway.management };
  const { command, args, env, text } = kind.start(readFileSync(kind.file, 'utf8'), places);
  await writeFile(path.join(directory, 'configuration'), text);
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
  t.teardown(() => end(child));
  while (!(await accepts(port))) {
    if (child.exitCode !== null) throw new Error(`${command} ended: ${output}`);
    await sleep(20);
  }
  const logs = ['access.log', 'error.log'].map((name) => path.join(directory, name));
  const written = async (): Promise<string> =>
    output + (await Promise.all(logs.map((file) => readFile(file, 'utf8').catch(() => '')))).join('');
  return { port, ca, written };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
}

async function accepts(port: number): Promise<boolean> {
  const socket = net.connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
