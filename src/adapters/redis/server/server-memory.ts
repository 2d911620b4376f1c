import type { Redis } from 'ioredis';
import type { StoreMemory } from '../../../gateway/store-ports.js';

/**
 * Reads the eviction policies of these servers, without duplicates, and the sums of `evicted_keys` and `maxmemory`.
 * Rejects if Redis does not reply.
 */
export async function memoryOf(servers: readonly Redis[]): Promise<StoreMemory> {
  const each = await Promise.all(
    servers.map(async (redis) => {
      const [memory, stats] = await Promise.all([sectionOf(redis, 'memory'), sectionOf(redis, 'stats')]);
      return {
        ...{ policy: policyIn(memory), evictedKeys: numberIn(stats, 'evicted_keys') },
        // Redis reports 0 if there is no limit.
        maxMemory: numberIn(memory, 'maxmemory') || Infinity,
      };
    }),
  );
  return {
    policies: [...new Set(each.flatMap(({ policy }) => policy ?? []))],
    evictedKeys: each.reduce((sum, { evictedKeys }) => sum + evictedKeys, 0),
    maxMemory: each.reduce((sum, { maxMemory }) => sum + maxMemory, 0),
  };
}

/** Returns the `maxmemory_policy` in a section of INFO; null if INFO omits it. */
export function policyIn(memory: string): string | null {
  return /^maxmemory_policy:([\w-]+)\r?$/m.exec(memory)?.[1] ?? null;
}

function numberIn(section: string, field: string): number {
  return Number(new RegExp(`^${field}:(\\d{1,15})\\r?$`, 'm').exec(section)?.[1] ?? 0);
}

/** Reads one section of INFO; empty if Redis refuses INFO. Rejects if Redis does not reply. */
export async function sectionOf(redis: Redis, section: string): Promise<string> {
  try {
    return await redis.info(section);
  } catch (error) {
    if (error instanceof Error && error.name === 'ReplyError') return '';
    throw error;
  }
}
