import http from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import type { Random } from '../fuzz/random.js';
import { call } from './call.js';
import { callerAddress, type Deployment } from './deployment.js';
import { isInForce, type Change, type Propagation, type Write } from './history.js';
import type { Keys, TestKey } from './keys.js';
import type { History } from './recorder.js';

interface Merchant {
  readonly id: string;
  status: 'ACTIVE' | 'INACTIVE';
  allowlist: 'open' | 'closed';
  readonly keys: TestKey[];
  readonly ended: TestKey[];
}

interface Response {
  readonly id?: string;
  readonly keyId?: string;
  readonly key?: string;
  readonly propagation?: Propagation;
}

/** A planned change: its call, and the values that the call writes if it has an effect. */
interface Plan {
  readonly action: string;
  readonly method: 'POST' | 'PATCH';
  readonly path: string;
  readonly body?: object;
  readonly writes: (data: Response) => Write[];
  /** Called if the change had, or may have had, an effect. */
  readonly done: (data: Response) => void;
  /** The keys that reveal whether the change is in force. */
  readonly shown: () => readonly TestKey[];
}

const merchantCount = 3;
const fewestKeys = 3;
const mostKeys = 6;
const mostPauseMilliseconds = 40;
/** Longer than any suspension of a registry, so that its response still arrives after the resume. */
const timeoutMilliseconds = 30_000;

/** Makes changes to its own merchants, one after the other, through any registry. */
export class Changes {
  /** Start time of the newest change that is in force. */
  inForceAt = -Infinity;
  readonly #deployment: Deployment;
  readonly #history: History;
  readonly #random: Random;
  readonly #keys: Keys;
  readonly #onInForce: (keys: readonly TestKey[]) => void;
  readonly #merchants: Merchant[] = [];
  readonly #agent = new http.Agent({ keepAlive: true });

  /** @param onInForce called with the affected keys as soon as a registry has reported their change as in force */
  constructor(
    deployment: Deployment,
    history: History,
    random: Random,
    keys: Keys,
    onInForce: (keys: readonly TestKey[]) => void,
  ) {
    this.#deployment = deployment;
    this.#history = history;
    this.#random = random;
    this.#keys = keys;
    this.#onInForce = onInForce;
  }

  /** Creates the merchants and their first keys. */
  async prepare(): Promise<void> {
    while (this.#merchants.length < merchantCount) await this.#make(this.#newMerchant());
    for (const merchant of this.#merchants) {
      while (merchant.keys.length < fewestKeys) await this.#make(this.#newKey(merchant));
    }
  }

  /** Makes changes until `isRunning` returns false. */
  async run(isRunning: () => boolean, isPaused: () => boolean): Promise<void> {
    while (isRunning()) {
      if (!isPaused()) await this.#make(this.#next());
      await wait(this.#random.below(mostPauseMilliseconds));
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  #next(): Plan {
    const random = this.#random;
    const merchant = random.pick(this.#merchants);
    if (merchant.status === 'INACTIVE' && !random.oneIn(3)) return this.#setStatus(merchant, 'ACTIVE');
    if (merchant.allowlist === 'closed' && !random.oneIn(3)) return this.#setAllowlist(merchant, 'open');
    if (merchant.keys.length < fewestKeys) return this.#newKey(merchant);
    switch (random.below(10)) {
      case 0:
        return this.#setStatus(merchant, merchant.status === 'ACTIVE' ? 'INACTIVE' : 'ACTIVE');
      case 1:
        return this.#setAllowlist(merchant, merchant.allowlist === 'open' ? 'closed' : 'open');
      case 2:
      case 3:
        return this.#reset(merchant, random.pick(merchant.keys));
      case 4:
        return this.#revoke(merchant, random.pick([...merchant.keys, ...merchant.ended]));
      case 5:
      case 6:
      case 7:
        if (merchant.keys.length < mostKeys) return this.#newKey(merchant);
        return this.#revoke(merchant, random.pick(merchant.keys));
      default:
        return this.#revoke(merchant, random.pick(merchant.keys));
    }
  }

  async #make(plan: Plan): Promise<void> {
    const { action, method, path, body, writes, done, shown } = plan;
    const registry = this.#random.pick(this.#deployment.registries);
    const headers = { authorization: `Bearer ${this.#deployment.token}` };
    const { port, name: party } = registry;
    const underWay = this.#history.add<Change>({
      ...{ kind: 'change', party, action, begun: performance.now(), ended: Infinity, status: null, propagation: null },
      writes: writes({}),
    });
    const response = await call({
      ...{ port, method, path, headers, body: body ?? {} },
      ...{ agent: this.#agent, timeoutMilliseconds },
    });
    const data = (response.body.data ?? {}) as Response;
    const { sent: begun, received: ended, status, isRefused } = response;
    // A restored database lacks everything created after its copy, so a change may be rejected.
    const isWithoutEffect = isRefused || (status !== null && status >= 400 && status < 500);
    const change = Object.assign(underWay, {
      ...{ begun, ended, status, propagation: data.propagation ?? null },
      writes: isWithoutEffect ? [] : writes(data),
    });
    if (status !== 404 && isWithoutEffect) await wait(100);
    else done(data);
    if (!isInForce(change)) return;
    this.inForceAt = begun;
    this.#onInForce(shown());
  }

  #newMerchant(): Plan {
    let made: Merchant | null = null;
    return {
      ...{ action: 'create merchant', method: 'POST', path: '/merchants' },
      body: { name: 'Shop', status: 'ACTIVE', goLive: true },
      writes: ({ id }) =>
        id === undefined
          ? []
          : [
              { register: `status:${id}`, value: 'ACTIVE' },
              { register: `allowlist:${id}`, value: 'open' },
            ],
      done: ({ id }) => {
        if (id === undefined) return;
        made = { id, status: 'ACTIVE', allowlist: 'open', keys: [], ended: [] };
        this.#merchants.push(made);
      },
      shown: () => [],
    };
  }

  #newKey(merchant: Merchant): Plan {
    return {
      ...{ action: `create key of ${merchant.id}`, method: 'POST', path: `/merchants/${merchant.id}/keys` },
      body: { environment: 'live' },
      writes: ({ keyId }) => (keyId === undefined ? [] : [{ register: `key:${keyId}`, value: 'active' }]),
      done: (data) => {
        this.#take(merchant, data);
      },
      shown: () => merchant.keys.slice(-1),
    };
  }

  #reset(merchant: Merchant, key: TestKey): Plan {
    return {
      ...{ action: `reset ${key.keyId}`, method: 'POST', path: `/keys/${key.keyId}/reset` },
      writes: ({ keyId }) => [
        { register: `key:${key.keyId}`, value: 'revoked' },
        ...(keyId === undefined ? [] : [{ register: `key:${keyId}`, value: 'active' }]),
      ],
      done: (data) => {
        this.#end(merchant, key);
        this.#take(merchant, data);
      },
      shown: () => [key, ...merchant.keys.slice(-1)],
    };
  }

  #revoke(merchant: Merchant, key: TestKey): Plan {
    return {
      ...{ action: `revoke ${key.keyId}`, method: 'POST', path: `/keys/${key.keyId}/revoke` },
      writes: () => [{ register: `key:${key.keyId}`, value: 'revoked' }],
      done: () => {
        this.#end(merchant, key);
      },
      shown: () => [key],
    };
  }

  #setStatus(merchant: Merchant, value: Merchant['status']): Plan {
    return this.#setting(merchant, `set ${merchant.id} ${value}`, { status: value }, 'status', value, () => {
      merchant.status = value;
    });
  }

  #setAllowlist(merchant: Merchant, value: Merchant['allowlist']): Plan {
    const body = { ipAllowlist: value === 'open' ? [callerAddress] : ['8.8.8.8'] };
    return this.#setting(merchant, `set the allowlist of ${merchant.id} ${value}`, body, 'allowlist', value, () => {
      merchant.allowlist = value;
    });
  }

  #setting(merchant: Merchant, action: string, body: object, kind: string, value: string, done: () => void): Plan {
    return {
      ...{ action, method: 'PATCH', path: `/merchants/${merchant.id}`, body, done },
      writes: () => [{ register: `${kind}:${merchant.id}`, value }],
      shown: () => merchant.keys.slice(-2),
    };
  }

  #take(merchant: Merchant, { keyId, key }: Response): void {
    if (keyId === undefined || key === undefined) return;
    const made = { keyId, key, merchantId: merchant.id };
    merchant.keys.push(made);
    this.#keys.add(made);
  }

  #end(merchant: Merchant, key: TestKey): void {
    const index = merchant.keys.indexOf(key);
    if (index >= 0) merchant.ended.push(...merchant.keys.splice(index, 1));
    if (merchant.ended.length > mostKeys) merchant.ended.shift();
    this.#keys.end(key);
  }
}
