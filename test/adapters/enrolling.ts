import { readAcknowledgement } from '../../src/adapters/redis/gateway-records.js';
import type { Acknowledgement } from '../../src/adapters/redis/gateway-records.js';
import { seededRecords } from './key-store-contract.js';
import { runIdOf } from './redis-server.js';
import type { RedisServer, Teardown } from './redis-server.js';

const metaName = 'mg:meta';

/**
 * Does the registry's part for one gateway, in tests without a registry: writes the meta record, and a grant for each
 * heartbeat that it observes. A grant permits the gateway to use cached records for a limited time.
 */
export interface EnrollingRegistry {
  /** Writes the meta record, which names this server or the given servers. */
  name(part?: { servers?: string[]; replicas?: number; generation?: string }): Promise<void>;
  /** Ignores beats, like an unavailable registry. Resolves once it writes no more grants. */
  stop(): Promise<void>;
  resume(): void;
}

/** The newest acknowledgement of a gateway; null if there is none. */
export async function acknowledgementOf(server: RedisServer, instanceId: string): Promise<Acknowledgement | null> {
  return readAcknowledgement(await server.client.get(`mg:gateway:${instanceId}`));
}

/** Simulates a registry on this server for one gateway. */
export function startEnrolling(t: Teardown, server: RedisServer, instanceId: string): EnrollingRegistry {
  let isRunning = true;
  let granting: Promise<unknown> = Promise.resolve();
  const timer = setInterval(() => {
    if (isRunning) granting = Promise.all([granting, grant(server, instanceId).catch(() => undefined)]);
  }, 50);
  t.teardown(() => {
    clearInterval(timer);
  });
  return {
    name: async ({ servers, ...part } = {}) => {
      const named = { servers: servers ?? [await runIdOf(server)], replicas: 0, ...part };
      await server.client.set(metaName, JSON.stringify({ ...(seededRecords[metaName] as object), ...named }));
    },
    stop: async () => {
      isRunning = false;
      await granting;
    },
    resume: () => {
      isRunning = true;
    },
  };
}

async function grant(server: RedisServer, instanceId: string): Promise<void> {
  const seen = await acknowledgementOf(server, instanceId);
  if (seen === null) return;
  const { generation, beat, lifetimeMilliseconds } = seen;
  await server.client.set(`mg:grant:${instanceId}`, JSON.stringify({ generation, beat, lifetimeMilliseconds }));
}
