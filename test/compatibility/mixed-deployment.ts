import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import { openSite } from '../deployment/deployment.js';
import type { Part } from '../deployment/process.js';

/** The status and the message of a gateway's response, or the reason why there was no response. */
type Verdict = string;

/** A gateway process of one of the releases. */
export interface RunningGateway {
  ask(key: string): Promise<Verdict>;
  /** Stops the gateway after the requests in progress have ended. */
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
  /** The administrators' token. */
  readonly token: string;
  /** @param root the directory of the release's build */
  startRegistry(root: string): Promise<RunningRegistry>;
  startGateway(root: string): Promise<RunningGateway>;
  /** The lines of the access logs that say why a gateway could not decide a request. */
  undecided(): Promise<string[]>;
}

interface Data {
  readonly id: string;
  readonly key: string;
  readonly keyId: string;
  readonly propagation: {
    readonly gateways: number | null;
    readonly confirmed: number;
    readonly pending: readonly unknown[];
    readonly projected?: false;
  };
}

/**
 * Starts Redis and an upstream. The result starts registries and gateways that use them. A Redis command may take five
 * seconds, because a busy machine must not look like an outage.
 * @param databaseUrl URL of an empty database; null: an SQLite file
 */
export async function startMixedDeployment(t: Test, databaseUrl: string | null): Promise<MixedDeployment> {
  const site = await openSite(t, {
    ...{ databaseUrl, pepper: true },
    settings: { keyStore: { redis: { commandTimeoutMilliseconds: 5000 } } },
  });

  async function stop(part: Part): Promise<void> {
    t.same(await part.stop(), [0, null], 'it ends cleanly');
  }

  async function startRegistry(root: string): Promise<RunningRegistry> {
    const registry = await site.startRegistry({}, { root });
    const send = async (method: string, target: string, body?: object): Promise<Data> => {
      const { success, status, message, data } = await registry.call<Data>(method, target, body);
      if (!success) throw new Error(`${method} ${target}: ${status} ${message}`);
      return data;
    };
    const isInForce = ({ propagation }: Data): boolean =>
      propagation.projected !== false && propagation.gateways !== null && propagation.pending.length === 0;
    return {
      url: registry.url,
      createMerchant: async () =>
        (await send('POST', '/merchants', { name: 'Shop', status: 'ACTIVE', goLive: true })).id,
      createKey: async (merchantId) => {
        const created = await send('POST', `/merchants/${merchantId}/keys`, { environment: 'live' });
        return { key: created.key, keyId: created.keyId, isInForce: isInForce(created) };
      },
      revoke: async (keyId) => isInForce(await send('POST', `/keys/${keyId}/revoke`, {})),
      gatewayIds: async () =>
        ((await send('GET', '/gateways')) as unknown as { instanceId: string }[]).map((one) => one.instanceId),
      stop: () => stop(registry),
    };
  }

  async function startGateway(root: string): Promise<RunningGateway> {
    const gateway = await site.startGateway({}, { root, isAwaited: false });
    let underWay = 0;
    const ask = async (key: string): Promise<Verdict> => {
      underWay += 1;
      try {
        const { status, body } = await gateway.get(key);
        return `${status} ${(JSON.parse(body) as { message: string }).message}`;
      } catch (error) {
        return `no response: ${error instanceof Error ? error.message : 'unknown reason'}`;
      } finally {
        underWay -= 1;
      }
    };
    return {
      ask,
      stop: async () => {
        while (underWay > 0) await sleep(5);
        gateway.closeConnections();
        await stop(gateway);
      },
    };
  }

  const undecided = async (): Promise<string[]> => {
    const logs = (await readdir(site.directory)).filter((name) => name.endsWith('.log'));
    const texts = await Promise.all(logs.map((name) => readFile(site.file(name), 'utf8')));
    return texts.flatMap((text) => text.split('\n').filter((line) => line.includes('"status_code":503')));
  };

  return { token: site.token, startRegistry, startGateway, undecided };
}
