import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import https from 'node:https';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import { startRedis } from '../adapters/redis-server.js';
import { startUpstream } from '../edge/harness.js';
import { killAtEnd, newInstallation, productCommand } from '../product-command.js';

/** The administrators' token. */
export const token = 'an-administrators-token-of-enough-characters';

/** A gateway's response: the status, and the message of the envelope. */
type Verdict = string;

/** A gateway process of one of the releases. */
export interface RunningGateway {
  ask(key: string): Promise<Verdict>;
  /** Stops it after the requests in progress have been answered. */
  stop(): Promise<void>;
}

/** A key and its id. */
export interface CreatedKey {
  readonly key: string;
  readonly keyId: string;
  /** Whether the registry reported the creation as in force on all gateways. */
  readonly isInForce: boolean;
}

/** A registry process of one of the releases. */
export interface RunningRegistry {
  readonly url: string;
  createMerchant(): Promise<string>;
  createKey(merchantId: string): Promise<CreatedKey>;
  /** Revokes a key; resolves with whether the registry reported the revocation as in force on all gateways. */
  revoke(keyId: string): Promise<boolean>;
  gatewayIds(): Promise<readonly string[]>;
  stop(): Promise<void>;
}

/** Processes of several releases on one Redis and one database. */
export interface MixedDeployment {
  /** @param root the directory of the release's build */
  startRegistry(root: string): Promise<RunningRegistry>;
  startGateway(root: string): Promise<RunningGateway>;
  /** The access log lines of requests that a gateway could not decide, which say why. */
  undecided(): Promise<string[]>;
}

interface Envelope {
  readonly success: boolean;
  readonly message: string;
  readonly data: {
    readonly id: string;
    readonly key: string;
    readonly keyId: string;
    readonly propagation: {
      readonly gateways: number | null;
      readonly confirmed: number;
      readonly pending: readonly unknown[];
      readonly projected?: false;
    };
  };
}

/**
 * Starts Redis and an upstream. A command may take long at Redis: a machine that runs other tests is not an outage.
 * @param databaseUrl URL of an empty database; null: an SQLite file
 */
export async function startMixedDeployment(t: Test, databaseUrl: string | null): Promise<MixedDeployment> {
  const [redis, upstream, { cert, key }] = await Promise.all([
    startRedis(t),
    startUpstream(t),
    createSelfSigned(new Date()),
  ]);
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-mixed-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const file = (name: string): string => path.join(directory, name);
  await writeFile(file('cert.txt'), cert);
  await writeFile(file('key.txt'), key);
  await writeFile(file('token.txt'), `${token}\n`);
  await writeFile(file('pepper.txt'), 'a pepper of the test, long enough\n');
  let started = 0;

  async function start(root: string, command: string, says: RegExp): Promise<{ child: ChildProcess; found: string }> {
    const name = `${command}-${(started += 1)}`;
    await writeFile(
      file(`${name}.yaml`),
      `listen:
  https: { host: 127.0.0.1, port: 0, certFile: ${file('cert.txt')}, keyFile: ${file('key.txt')} }
  http: null
  management: null
torExits: { enabled: false }
throttle: { enabled: false }
accessLog: { destination: ${file(`${name}.log`)} }
keys: { pepperFile: ${file('pepper.txt')} }
keyStore: { kind: redis, redis: { url: "${redis.url}", commandTimeoutMilliseconds: 5000 } }
registry: { listen: { port: 0 }, database: { url: "${databaseUrl ?? `sqlite:${file('registry.db')}`}" }, tokenFile: ${file('token.txt')} }
upstreams: { transactions: { url: "${upstream.url}" } }
routes: [{ path: /transactions, upstream: transactions, resource: transactions }]
`,
    );
    // The former release always creates a missing database.
    const own = path.resolve(root) === process.cwd() ? newInstallation(command) : [];
    const child = spawn(...productCommand([command, '--config', file(`${name}.yaml`), ...own], [], root), {
      stdio: 'pipe',
    });
    killAtEnd(t, child);
    child.stdout.resume();
    let log = '';
    const found = await new Promise<string>((resolve, reject) => {
      child.stderr.on('data', (chunk: Buffer) => {
        log += chunk.toString();
        const [, match] = says.exec(log) ?? [];
        if (match !== undefined) resolve(match);
      });
      child.once('exit', () => {
        reject(new Error(`${command} ended: ${log}`));
      });
    });
    return { child, found };
  }

  async function stop(child: ChildProcess): Promise<void> {
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    const [code] = (await ended) as [number | null];
    t.equal(code, 0, 'it ends cleanly');
  }

  async function startRegistry(root: string): Promise<RunningRegistry> {
    const { child, found: url } = await start(root, 'registry', /"url":"(http:[^"]+)"/);
    const send = async (method: string, target: string, body?: object): Promise<Envelope & { status: number }> => {
      const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
      const content = body === undefined ? {} : { headers, body: JSON.stringify(body) };
      const response = await fetch(url + target, {
        method,
        headers: { authorization: headers.authorization },
        ...content,
      });
      const envelope = (await response.json()) as Envelope;
      if (!envelope.success) throw new Error(`${method} ${target}: ${response.status} ${envelope.message}`);
      return { status: response.status, ...envelope };
    };
    const isInForce = ({ data: { propagation } }: Envelope): boolean =>
      propagation.projected !== false && propagation.gateways !== null && propagation.pending.length === 0;
    return {
      url,
      createMerchant: async () =>
        (await send('POST', '/merchants', { name: 'Shop', status: 'ACTIVE', goLive: true })).data.id,
      createKey: async (merchantId) => {
        const created = await send('POST', `/merchants/${merchantId}/keys`, { environment: 'live' });
        const { key: text, keyId } = created.data;
        return { key: text, keyId, isInForce: isInForce(created) };
      },
      revoke: async (keyId) => isInForce(await send('POST', `/keys/${keyId}/revoke`, {})),
      gatewayIds: async () =>
        ((await send('GET', '/gateways')).data as unknown as { instanceId: string }[]).map((one) => one.instanceId),
      stop: () => stop(child),
    };
  }

  async function startGateway(root: string): Promise<RunningGateway> {
    const says = /"https":\{"address":"127\.0\.0\.1","family":"IPv4","port":(\d+)\}/;
    const { child, found: port } = await start(root, 'gateway', says);
    const agent = new https.Agent({ keepAlive: true, maxSockets: 16, ca: cert });
    t.teardown(() => {
      agent.destroy();
    });
    let underWay = 0;
    const ask = async (apiKey: string): Promise<Verdict> => {
      underWay += 1;
      try {
        return await verdictOf({ host: '127.0.0.1', port: Number(port), agent, headers: { 'x-api-key': apiKey } });
      } finally {
        underWay -= 1;
      }
    };
    return {
      ask,
      stop: async () => {
        while (underWay > 0) await sleep(5);
        agent.destroy();
        await stop(child);
      },
    };
  }

  const undecided = async (): Promise<string[]> => {
    const logs = (await readdir(directory)).filter((name) => name.endsWith('.log'));
    const texts = await Promise.all(logs.map((name) => readFile(file(name), 'utf8')));
    return texts.flatMap((text) => text.split('\n').filter((line) => line.includes('"status_code":503')));
  };

  return { startRegistry, startGateway, undecided };
}

async function verdictOf(options: https.RequestOptions): Promise<Verdict> {
  try {
    const request = https.get({ ...options, path: '/v1/transactions' });
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    let text = '';
    for await (const chunk of response.setEncoding('utf8')) text += chunk as string;
    return `${response.statusCode ?? 0} ${(JSON.parse(text) as { message: string }).message}`;
  } catch (error) {
    return `no response: ${error instanceof Error ? error.message : 'unknown reason'}`;
  }
}
