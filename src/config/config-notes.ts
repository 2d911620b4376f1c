import type { Problem } from './config-error.js';
import type { Config } from './schema.js';
import type { ServerCommand } from './start-problems.js';

/** What the operator of a command should know of a configuration with which it starts. */
export function configNotes(command: ServerCommand, { keyStore: { kind, redis, cache } }: Config): Problem[] {
  if (command === 'services' || kind === 'memory') return [];
  return [...replicaNotes(redis), ...(command === 'gateway' ? [memoryNote(cache)] : [])];
}

/** Bytes of the heap that one takes, a merchant with short lists: measured, see docs/records.md. */
const bytesOfKey = 420;
const bytesOfMerchant = 650;
/** What the heap needs besides what is in it, to be collected in. */
const heapFactor = 1.5;
const bytesOfMebibyte = 1024 ** 2;

function memoryNote({ maxEntries, preload }: Config['keyStore']['cache']): Problem {
  const [keys, merchants] = [bytesOfKey, bytesOfMerchant].map((bytes) =>
    Math.ceil((maxEntries * bytes * heapFactor) / bytesOfMebibyte),
  );
  const when = preload ? 'all of its environment are read when it starts' : 'a record is read when it is asked for';
  const message =
    `in each process of a gateway ${maxEntries} keys take about ${keys ?? 0} MiB of memory, and as many merchants with short ` +
    `lists ${merchants ?? 0} MiB; ${when}`;
  return { path: 'keyStore.cache.maxEntries', message };
}

function replicaNotes(redis: Config['keyStore']['redis']): Problem[] {
  const isOneName = redis.sentinel === null && redis.cluster === null;
  if (!isOneName || redis.replicas !== null) return [];
  const message =
    'is not set: if keyStore.redis.url is one name for a pair that fails over, as managed services offer it, Redis may not show ' +
    'its replicas, and a gateway that is left with the former master goes on accepting revoked keys. Set the number of ' +
    'replicas, or 0 if there are none';
  return [{ path: 'keyStore.redis.replicas', message }];
}
