import { totalmem } from 'node:os';
import type { Config } from './schema.js';

/** Bytes. */
export const mebibyte = 1024 ** 2;
/** A gateway at rest that has warmed up: 116 MiB on Node 20, 132 on Node 24 (`npm run bench:connections`). */
const processBytes = 136 * mebibyte;
/** An idle connection over TLS that has had a request: 37 KiB on Node 20, 61 on Node 24, of which bare TLS takes 28 and 52. */
const tlsConnectionBytes = 64 * 1024;
/** The same over plain TCP: 14 KiB on Node 24. */
const plainConnectionBytes = 16 * 1024;
/** Process and idle connections together take at most this share of the memory, so that what requests need is there. */
const restingShare = 0.6;
/** Of the memory: bodies that wait for a place at their upstream. */
const bodyShare = 0.1;
/** Of the memory: requests in flight, upstream connections, lines of the log, garbage. */
const spareShare = 0.1;
/** Of what the process leaves, caches may have this share. */
const cacheShare = 0.5;

/** What the heap needs besides what is in it, to be collected in. */
export const heapFactor = 1.5;
/** Bytes of the heap that one takes, a merchant with short lists: measured, see docs/records.md. */
export const bytesOfKey = 420;
export const bytesOfMerchant = 650;
/** Merchants have several keys: one merchant for so many keys is counted. */
const keysOfMerchant = 4;
/** That it exists, which a gateway remembers beyond what it holds, outside of the heap. */
const bytesOfKnown = 32;
/** A name that is held as unknown, and a source that the throttle remembers. */
const bytesOfUnknown = 140;
const bytesOfSource = 170;

/** What a gateway process does with its memory, in bytes, and what that allows. */
export interface MemoryPlan {
  /** All that the process may take. */
  readonly memory: number;
  /** Whether that is `limits.memory`, or what the system gives the process. */
  readonly source: 'limits.memory' | 'system';
  readonly process: number;
  /** Records, unknown names and throttled sources, when as many are held as may be. */
  readonly caches: number;
  /** Idle connections, as many as may be open. */
  readonly connections: number;
  /** Bodies that wait for a place at their upstream. */
  readonly bufferedBodyBytes: number;
  /** What it allows: at most what is configured. */
  readonly allows: {
    /** `limits.connections`, of each listener. */
    readonly connections: number;
    /** `keyStore.cache.maxEntries` and `unknownMaxEntries`. */
    readonly maxEntries: number;
    readonly unknownMaxEntries: number;
    /** `throttle.maxSources`. */
    readonly maxSources: number;
  };
}

/**
 * Plans the memory of a gateway: `limits.memory`, or else what the system gives the process (a cgroup's limit, or all of the machine's).
 * @param processes how many worker processes share it
 */
export function planMemory(config: Config, processes = 1, system: number = memoryOfSystem()): MemoryPlan {
  const { limits, listen } = config;
  const memory = Math.floor((limits.memory ?? system) / processes);
  const free = Math.max(0, memory - processBytes);
  const configured = cacheSizes(config);
  const wanted = bytesOf(configured);
  const share = Math.min(1, (free * cacheShare) / Math.max(1, wanted));
  const caches = Math.floor(wanted * share);
  const bufferedBodyBytes = Math.floor(memory * bodyShare);
  const each = (listen.https === null ? 0 : tlsConnectionBytes) + (listen.http === null ? 0 : plainConnectionBytes);
  const room = Math.min(
    memory * restingShare - processBytes,
    free - caches - bufferedBodyBytes - Math.floor(memory * spareShare),
  );
  const connections = Math.max(1, Math.min(limits.connections, Math.floor(room / Math.max(1, each))));
  const { maxEntries, unknownMaxEntries, maxSources } = configured;
  const reduced = (count: number): number => Math.max(1, Math.floor(count * share));
  return {
    memory,
    source: limits.memory === null ? 'system' : 'limits.memory',
    process: processBytes,
    caches,
    connections: connections * each,
    bufferedBodyBytes,
    allows: {
      connections,
      maxEntries: reduced(maxEntries),
      unknownMaxEntries: reduced(unknownMaxEntries),
      maxSources: reduced(maxSources),
    },
  };
}

/** The configuration of a gateway process with the limits that its memory allows. */
export function fitToMemory(config: Config, processes = 1, system?: number): Config {
  const { memory, allows } = planMemory(config, processes, system);
  const { connections, maxEntries, unknownMaxEntries, maxSources } = allows;
  return {
    ...config,
    limits: { ...config.limits, memory, connections },
    keyStore: { ...config.keyStore, cache: { ...config.keyStore.cache, maxEntries, unknownMaxEntries } },
    throttle: { ...config.throttle, maxSources },
  };
}

interface CacheSizes {
  readonly maxEntries: number;
  readonly unknownMaxEntries: number;
  readonly maxSources: number;
}

function cacheSizes({ keyStore, throttle }: Config): CacheSizes {
  const { maxEntries, unknownMaxEntries } = keyStore.cache;
  return { maxEntries, unknownMaxEntries, maxSources: throttle.maxSources };
}

function bytesOf({ maxEntries, unknownMaxEntries, maxSources }: CacheSizes): number {
  const records = maxEntries * (bytesOfKey + bytesOfMerchant / keysOfMerchant);
  return (
    maxEntries * bytesOfKnown + (records + unknownMaxEntries * bytesOfUnknown + maxSources * bytesOfSource) * heapFactor
  );
}

/** Node says 0 where it does not know a limit, and an absurd number where there is none. */
function memoryOfSystem(): number {
  const limit = process.constrainedMemory();
  const all = totalmem();
  return limit > 0 && limit < all ? limit : all;
}
