import { totalmem } from 'node:os';
import type { Config } from './schema.js';

/** Bytes per MiB. */
export const mebibyte = 1024 ** 2;
/**
 * Memory of an idle gateway after its warm-up, with a margin. Measured (`npm run bench:connections`): 116 MiB on Node
 * 20, 132 MiB on Node 24.
 */
const processBytes = 136 * mebibyte;
/**
 * Memory of an idle TLS connection after a request, with a margin. Measured: 37 KiB on Node 20, of which 28 KiB are for
 * TLS; 61 KiB on Node 24, of which 52 KiB are for TLS.
 */
const tlsConnectionBytes = 64 * 1024;
/** Memory of an idle connection without TLS after a request: 14 KiB measured on Node 24, and a margin. */
const plainConnectionBytes = 16 * 1024;
/** Maximum share of the memory for the idle process and for idle connections. Requests use the rest. */
const restingShare = 0.6;
/** Share of the memory for request bodies that have not arrived completely. */
const bodyShare = 0.1;
/** Share of the memory that stays free for requests in flight, upstream connections, log lines and garbage. */
const spareShare = 0.1;
/** Maximum share for caches. It is a share of the memory that remains after `processBytes` is subtracted. */
const cacheShare = 0.5;

/** Ratio of the heap size to the live data. It exceeds 1, because garbage collection needs headroom. */
export const heapFactor = 1.5;
/** Heap bytes of one cached key with a label (see docs/records.md). */
export const bytesOfKey = 460;
/** Heap bytes of one cached merchant with short lists (see docs/records.md). */
export const bytesOfMerchant = 650;
/** Assumed average number of keys per merchant. */
const keysOfMerchant = 4;
/** Off-heap bytes for the set of existing keys (`KnownKeys`), per entry of the record cache: 8 slots of 4 bytes. */
const bytesOfKnown = 32;
/** Heap bytes of one cached lookup of an unknown key. */
const bytesOfUnknown = 140;
/** Heap bytes of one source address in the throttle. */
const bytesOfSource = 170;

/** How a gateway process divides its memory, in bytes, and which limits fit into it. */
export interface MemoryPlan {
  /** Memory that the process is allowed to use. */
  readonly memory: number;
  /** Where `memory` comes from: the option `limits.memory`, or the limit of the system. */
  readonly source: 'limits.memory' | 'system';
  readonly process: number;
  /** Memory of full caches: records, lookups of unknown keys, and sources that the throttle tracks. */
  readonly caches: number;
  /** Memory of the maximum number of connections while all are idle. */
  readonly connections: number;
  /** Memory for request bodies that have not arrived completely. */
  readonly bufferedBodyBytes: number;
  /** The limits that fit into the memory; never higher than the configured limits. */
  readonly allows: {
    /** Value to use for `limits.connections`, for each listener. */
    readonly connections: number;
    /** Value to use for `keyStore.cache.maxEntries`. */
    readonly maxEntries: number;
    /** Value to use for `keyStore.cache.unknownMaxEntries`. */
    readonly unknownMaxEntries: number;
    /** Value to use for `throttle.maxSources`. */
    readonly maxSources: number;
  };
}

/**
 * Divides the memory of a gateway equally among its worker processes, and the share of one process among its uses. The
 * total is `limits.memory`. If that option is null, the total is the limit of the cgroup or the machine's memory,
 * whichever is lower.
 * @param processes number of worker processes
 * @param system the total in bytes if `limits.memory` is null
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

/**
 * Returns the configuration of one gateway process. `limits.memory` is the share of this process, and the other limits
 * are reduced to what fits into that share.
 */
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

/**
 * Returns the limit of the cgroup or the machine's memory, whichever is lower. Node reports the cgroup limit as 0 if
 * the limit is unknown, and as a huge number if there is no limit. In both cases, the machine's memory is returned.
 */
function memoryOfSystem(): number {
  const limit = process.constrainedMemory();
  const all = totalmem();
  return limit > 0 && limit < all ? limit : all;
}
