import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import { distributionOf, round } from './distribution.js';
import { benchKey } from './key-file.js';

/** The cost of a look-up in two stores, measured alternately, and the ratio of the second to the first. */
export interface LookUpCost {
  readonly microseconds: readonly [few: number, many: number];
  readonly ratio: number;
}

const rounds = 30;
const asked = 1000;

/** Opens a gateway's key store on this Redis, in this process. */
function openKeyStore(url: string, maxEntries: number): RecordKeyStore {
  const address = {
    ...{ url, cluster: null, sentinels: null, masterName: '', username: null, password: null, ca: null },
    commandTimeoutMilliseconds: 200,
  };
  const cache = {
    ...{ maxEntries, maxAgeMilliseconds: 600_000, unknownMaxEntries: 1, unknownMaxAgeMilliseconds: 1 },
    maxStaleMilliseconds: 30_000,
  };
  const identity = { instanceId: `bench-${maxEntries}`, environment: 'test', host: 'bench', startedAt: '' } as const;
  const clock = { now: () => Date.now() };
  const silent = (): void => undefined;
  return new RecordKeyStore(
    new RedisRecords({
      address,
      prefix: 'mg:',
      cache,
      identity,
      clock,
      onMalformed: silent,
      onLost: silent,
      onFound: silent,
    }),
  );
}

/**
 * Looks up the same keys alternately in a Redis with few keys and in one with many.
 * @param maxEntries size of the cache: with 1 each look-up queries Redis; above the number of records none does
 */
export async function compareLookUps(
  urls: readonly [few: string, many: string],
  sizes: readonly [few: number, many: number],
  maxEntries: number,
): Promise<LookUpCost> {
  const stores = urls.map((url) => openKeyStore(url, maxEntries));
  const costs: number[][] = [[], []];
  try {
    for (const [which, store] of stores.entries()) {
      while (store.unavailableReason() !== null) await new Promise((resolve) => setTimeout(resolve, 10));
      if (maxEntries > 1) await lookUp(store, 0, Math.min(sizes[which] ?? 0, maxEntries / 2));
    }
    for (let round = 0; round < rounds; round += 1) {
      for (const which of round % 2 === 0 ? [0, 1] : [1, 0]) {
        const store = stores[which];
        if (store === undefined) continue;
        const begun = performance.now();
        await lookUp(store, 0, Math.min(asked, sizes[0]));
        costs[which]?.push(((performance.now() - begun) * 1000) / Math.min(asked, sizes[0]));
      }
    }
  } finally {
    for (const store of stores) await store.close();
  }
  const [few = NaN, many = NaN] = costs.map((some) => distributionOf(some).p50);
  return { microseconds: [few, many], ratio: round(many / few) };
}

const atOnce = 100;

async function lookUp(store: RecordKeyStore, from: number, to: number): Promise<void> {
  for (let start = from; start < to; start += atOnce) {
    const numbers = Array.from({ length: Math.min(atOnce, to - start) }, (_, index) => start + index);
    const results = await Promise.all(numbers.map(async (number) => store.find(lookupIdOf(benchKey(number), null))));
    if (results.some(({ credential }) => credential === null)) throw new Error('a key is not known');
  }
}
