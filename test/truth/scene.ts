import http from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import type { Teardown } from '../adapters/redis-server.js';
import { call, type Called } from './call.js';
import { callerAddress, startDeployment, type Deployment, type DeploymentOptions, type Party } from './deployment.js';
import { isInForce, type Propagation } from './history.js';
import { importKeys } from './imported-keys.js';
import type { TestKey } from './keys.js';
import { History } from './recorder.js';
import type { DataServer } from './stores.js';

/** A registry's response to a change, and when it was read. */
export interface RevocationResult {
  readonly isInForce: boolean;
  readonly pending: Propagation['pending'];
  readonly received: number;
}

/** Requests to one gateway while the test goes on, and their responses so far. */
export interface Watch {
  readonly seen: readonly Called[];
  stop(): Promise<void>;
}

/** A key or merchant that the registry holds back after a restore, because a newer state of it is known. */
export interface HeldBack {
  readonly id: string;
  /** The source of the newer state: `store`, or the instance id of a gateway. */
  readonly source: string;
}

interface Data {
  readonly id?: string;
  readonly keyId?: string;
  readonly key?: string;
  readonly propagation?: Propagation;
}

const timeoutMilliseconds = 10_000;
const betweenRequestsMilliseconds = 3;
const beatsMilliseconds = 1_500;
const longestMilliseconds = 60_000;
const longestInForceMilliseconds = 35_000;
const betweenTriesMilliseconds = 50;

/** A deployment in which the test itself makes changes and sends requests to gateways. */
export class Scene {
  readonly deployment: Deployment;
  readonly #agent = new http.Agent({ keepAlive: true });
  #isOver = false;
  #merchantId = '';

  private constructor(deployment: Deployment) {
    this.deployment = deployment;
  }

  static async start(t: Teardown, options: DeploymentOptions): Promise<Scene> {
    const scene = new Scene(await startDeployment(t, new History(), options));
    t.teardown(() => {
      scene.#isOver = true;
      scene.#agent.destroy();
    });
    const body = { name: 'Shop', status: 'ACTIVE', goLive: true };
    const { data } = await scene.#change('/merchants', body);
    scene.#merchantId = data.id ?? '';
    return scene;
  }

  /** Creates a key and waits until every gateway accepts it. */
  async createKey(): Promise<TestKey> {
    const { data } = await this.#change(`/merchants/${this.#merchantId}/keys`, { environment: 'live' });
    const made = { keyId: data.keyId ?? '', merchantId: this.#merchantId, key: data.key ?? '' };
    for (const gateway of this.deployment.gateways) {
      await this.until(async () => (await this.ask(gateway, made)).status === 200, `${gateway.name} accepts a new key`);
    }
    return made;
  }

  /** Imports keys that no gateway has seen in a request. @param first the number of keys imported before */
  importKeys(count: number, first = 0): Promise<TestKey[]> {
    return importKeys(this.deployment, new History(), count, count, first);
  }

  /** Sends one request per key to a gateway, with pauses, but without waiting for responses. */
  watchEach(gateway: Party, keys: readonly TestKey[], pauseMilliseconds: number): Watch {
    const seen: Called[] = [];
    const state = { isRunning: true };
    const asking = (async () => {
      const asked: Promise<unknown>[] = [];
      for (const key of keys) {
        if (!state.isRunning) break;
        asked.push(this.ask(gateway, key).then((called) => seen.push(called)));
        await wait(pauseMilliseconds);
      }
      await Promise.all(asked);
    })();
    return {
      seen,
      stop: async () => {
        state.isRunning = false;
        await asking;
      },
    };
  }

  /** Revokes a key. If it is already revoked, the registry reports how far the revocation has propagated. */
  async revoke({ keyId }: TestKey): Promise<RevocationResult> {
    const { data, status, received } = await this.#change(`/keys/${keyId}/revoke`, {});
    const propagation = data.propagation ?? null;
    const change = {
      status,
      propagation,
      kind: 'change',
      party: '',
      action: '',
      begun: 0,
      ended: 0,
      writes: [],
    } as const;
    return { isInForce: isInForce(change), pending: propagation?.pending ?? [], received };
  }

  /** Repeats the revocation until it is in force. @returns the last response, and the gateways pending before it */
  async revokeInForce(key: TestKey): Promise<RevocationResult & { readonly waitedFor: Propagation['pending'] }> {
    let waitedFor: Propagation['pending'] = [];
    for (const end = performance.now() + longestInForceMilliseconds; performance.now() < end;) {
      const result = await this.revoke(key);
      if (result.isInForce) return { ...result, waitedFor };
      waitedFor = result.pending;
      await wait(betweenTriesMilliseconds);
    }
    throw new Error('never: a revocation is in force');
  }

  /** The keys and merchants held back since the restore; empty while the registry does not respond. */
  async heldBack(): Promise<readonly HeldBack[]> {
    return (await this.#list('/restores/held')) as readonly HeldBack[];
  }

  /** The restores, newest first. `certain`: whether Redis or a gateway knew a change that the database lacks. */
  async restores(): Promise<readonly { readonly certain: boolean }[]> {
    return (await this.#list('/restores')) as readonly { readonly certain: boolean }[];
  }

  /** Sends one request to a gateway. */
  ask(gateway: Party, { key }: TestKey): Promise<Called> {
    const headers = { 'x-api-key': key, 'x-forwarded-proto': 'https', 'x-forwarded-for': callerAddress };
    const { port } = gateway;
    return call({ port, method: 'GET', path: '/v1/transactions', headers, agent: this.#agent, timeoutMilliseconds });
  }

  /** Repeats a request until it is decided: on a busy machine a heartbeat can be late. @returns the status */
  async decide(gateway: Party, key: TestKey): Promise<number | null> {
    let status: number | null = null;
    const isDecided = async (): Promise<boolean> => {
      ({ status } = await this.ask(gateway, key));
      return status !== 503;
    };
    await this.until(isDecided, `${gateway.name} decides a request instead of responding with 503`);
    return status;
  }

  /** Sends requests with one key to a gateway, one after the other, until they are stopped. */
  watch(gateway: Party, key: TestKey): Watch {
    const seen: Called[] = [];
    const state = { isRunning: true };
    const asking = (async () => {
      while (state.isRunning && !this.#isOver) {
        seen.push(await this.ask(gateway, key));
        await wait(betweenRequestsMilliseconds);
      }
    })();
    return {
      seen,
      stop: async () => {
        state.isRunning = false;
        await asking;
      },
    };
  }

  /** All masters of Redis. On a busy machine a master can be late, so this waits until all of them reply. */
  async masters(): Promise<readonly DataServer[]> {
    const { store } = this.deployment;
    let masters: readonly DataServer[] = [];
    await this.until(
      async () => (masters = await store.masters()).length === store.masterCount,
      'all masters reply, and no other server is a master',
    );
    return masters;
  }

  /** Resolves some heartbeats after every gateway got its grant: the registry's permission to use a cache. */
  async enrolled(): Promise<void> {
    const { store, gateways } = this.deployment;
    await this.until(async () => {
      const masters = await store.masters();
      const names = await Promise.all(masters.map(({ client }) => client.keys('mg:grant:*')));
      return names.flat().length >= gateways.length;
    }, 'every gateway has a grant');
    await wait(beatsMilliseconds);
  }

  /** Waits for a condition. @returns the waiting time in milliseconds */
  async until(holds: () => Promise<boolean>, what: string): Promise<number> {
    const begun = performance.now();
    while (!(await holds())) {
      if (performance.now() - begun > longestMilliseconds) throw new Error(`never: ${what}`);
      await wait(20);
    }
    return Math.round(performance.now() - begun);
  }

  async #list(path: string): Promise<readonly unknown[]> {
    const { token, registries } = this.deployment;
    const port = registries[0]?.port ?? 0;
    const headers = { authorization: `Bearer ${token}` };
    const called = await call({ port, method: 'GET', path, headers, agent: this.#agent, timeoutMilliseconds });
    return (called.body.data ?? []) as readonly unknown[];
  }

  async #change(path: string, body: object): Promise<{ status: number | null; received: number; data: Data }> {
    const { token, registries } = this.deployment;
    const port = registries[0]?.port ?? 0;
    const headers = { authorization: `Bearer ${token}` };
    const called = await call({ port, method: 'POST', path, headers, body, agent: this.#agent, timeoutMilliseconds });
    return { status: called.status, received: called.received, data: called.body.data ?? {} };
  }
}

/** Start time of the last accepted request; null if no request was accepted. */
export function lastAccepted({ seen }: Watch): number | null {
  return seen.findLast(({ status }) => status === 200)?.sent ?? null;
}

/** The distinct statuses of the responses. */
export function statusesOf({ seen }: Watch): (number | null)[] {
  return [...new Set(seen.map(({ status }) => status))];
}
