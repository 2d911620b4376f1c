import { totalmem } from 'node:os';
import type { Config } from './schema.js';

/** In bytes. */
export const mebibyte = 1024 ** 2;
/** Memory of an idle, warmed-up gateway: 116 MiB on Node 20, 132 on Node 24 (`npm run bench:connections`). */
const processBytes = 136 * mebibyte;
/** An idle TLS connection after a request: 37 KiB on Node 20, 61 on Node 24, of which TLS itself takes 28 and 52. */
const tlsConnectionBytes = 64 * 1024;
/** An idle plain TCP connection after a request: 14 KiB on Node 24. */
const plainConnectionBytes = 16 * 1024;
/** Maximum share of the memory for the process and idle connections. The rest is for requests. */
const restingShare = 0.6;
/** Share of the memory for bodies that wait for a permit of their upstream. */
const bodyShare = 0.1;
/** Share of the memory for requests in flight, upstream connections, log lines and garbage. */
const spareShare = 0.1;
/** Maximum share of the memory beyond `processBytes` for caches. */
const cacheShare = 0.5;

/** Heap size per byte of live data: garbage collection needs headroom. */
export const heapFactor = 1.5;
/** Heap bytes of one cached key, and of one cached merchant with short lists. Measured, see docs/records.md. */
export const bytesOfKey = 420;
export const bytesOfMerchant = 650;
/** Assumed number of keys per merchant. */
const keysOfMerchant = 4;
/** Off-heap bytes of the note that a key exists, which a gateway stores also for keys that are not cached. */
const bytesOfKnown = 32;
/** Heap bytes of a cached negative lookup, and of a source in the throttle. */
const bytesOfUnknown = 140;
const bytesOfSource = 170;

/** How a gateway process divides its memory, in bytes, and the limits that follow. */
export interface MemoryPlan {
  /** The memory that the process may use. */
  readonly memory: number;
  /** The source of `memory`: `limits.memory`, or the limit of the system. */
  readonly source: 'limits.memory' | 'system';
  readonly process: number;
  /** Full caches of records, negative lookups and throttled sources. */
  readonly caches: number;
  /** The memory that the maximum number of connections takes while all of them are idle. */
  readonly connections: number;
  /** Bodies that wait for a permit of their upstream. */
  readonly bufferedBodyBytes: number;
  /** The limits that fit, at most the configured ones. */
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
 * Plans the memory of a gateway process: `limits.memory`, or the limit of the system (the cgroup, or the machine).
 * @param processes number of worker processes that share the memory
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

/** The configuration of a gateway process, with its limits reduced to its memory. */
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

/** Node returns 0 for an unknown limit and a huge number if there is no limit. */
function memoryOfSystem(): number {
  const limit = process.constrainedMemory();
  const all = totalmem();
  return limit > 0 && limit < all ? limit : all;
}
