import { createHash } from 'node:crypto';
import type { InjectOptions } from 'fastify';
import type { Test } from 'tap';
import { pepperOf } from '../../src/gateway/api-key.js';
import { createServers, type RegistryOptions } from '../../src/registry/create-registry.js';
import type { ApiKey } from '../../src/registry/keys/schema.js';
import type { Merchant } from '../../src/registry/merchants/schema.js';
import { Projector } from '../../src/registry/projection/projector.js';
import type { Propagation } from '../../src/registry/propagation.js';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { patient, withoutLock } from './projection-fixture.js';
import { ManualTime, outwait } from './manual-time.js';
import { MemoryRecordsStore } from './memory-records-store.js';

/** A response of the admin API with its parsed body. */
export interface ApiResponse<Data = unknown> {
  readonly status: number;
  readonly headers: Record<string, unknown>;
  readonly body: {
    readonly success: boolean;
    readonly message: string;
    readonly data: Data;
    readonly meta?: Record<string, number>;
  };
}

/** Optional parts of a test request. */
export interface Details {
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
}

export type Changed<Record> = Record & { readonly propagation: Propagation };
export type NewKey = Changed<ApiKey & { readonly key: string }>;

export const token = 'a-token-of-administrators-0123456789';
export const pepper = pepperOf(Buffer.from('a pepper of the tests'));

const resources: ReadonlySet<string> = new Set(['customers', 'payouts', 'transactions', 'wallets']);

/** The admin API and its projector on a database, an in-memory store, and a clock that only the test advances. */
export async function registryFixture(t: Test, url: string, further: Partial<RegistryOptions> = {}) {
  const time = new ManualTime();
  const store = new MemoryRecordsStore();
  const logged: { details: object; message: string }[] = [];
  const log = (details: object, message: string): void => void logged.push({ details, message });
  const logger = { error: log, warn: log, info: log };
  let count = 0;
  const random = (size: number): Buffer =>
    createHash('shake256', { outputLength: size })
      .update(`${(count += 1)}`)
      .digest();
  const newGeneration = (): string => `generation-${(count += 1)}`;
  const database = await openRegistryDatabase({ url, pool: patient, generation: newGeneration() });
  const parts = { database, store, clock: time, timers: time, newGeneration, logger };
  const projecting = { ...parts, monotonic: time.monotonic, longestLifetimeMilliseconds: 31_000 };
  const projector = new Projector({ ...projecting, session: withoutLock, holder: 'this process' });
  const options = { ...parts, projector, random, token, pepper, resources, maxStaleSeconds: 30, ...further };
  const { app } = createServers(options);
  let replica: typeof app | undefined;
  projector.wake();
  await projector.nextPass();
  logged.length = 0; // discards the log lines of the first pass
  t.teardown(async () => {
    await Promise.all([app.close(), replica?.close()]);
    await projector.stop();
    await database.destroy();
  });

  async function call<Data = unknown>(
    method: NonNullable<InjectOptions['method']>,
    path: string,
    { body, headers }: Details = {},
  ): Promise<ApiResponse<Data>> {
    const response = await app.inject({
      method,
      url: path,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    return { status: response.statusCode, headers: response.headers, body: response.json() };
  }

  return {
    ...{ app, call, database, logged, options, projector, store, time },
    /** Another replica of the registry on the same database. */
    get replica() {
      return (replica ??= createServers(options).app);
    },
    /** Waits for this many `gateways` calls, then advances the clock until the promise has settled. */
    outwait: <Result>(promise: Promise<Result>, timesAsked: number) => {
      const before = store.timesAsked;
      return outwait(time, promise, () => store.timesAsked >= before + timesAsked);
    },
    createMerchant: async (fields: object = {}): Promise<Changed<Merchant>> =>
      (await call<Changed<Merchant>>('POST', '/merchants', { body: { name: 'Ada Stores', ...fields } })).body.data,
    createKey: async (merchantId: string, fields: object = {}): Promise<NewKey> =>
      (await call<NewKey>('POST', `/merchants/${merchantId}/keys`, { body: { environment: 'live', ...fields } })).body
        .data,
  };
}
