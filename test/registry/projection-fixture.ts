import { createHash } from 'node:crypto';
import type { Test } from 'tap';
import { openSession } from '../../src/database/session.js';
import type { Logger } from '../../src/gateway/store-ports.js';
import { Projection } from '../../src/registry/projection/projection.js';
import { Projector } from '../../src/registry/projection/projector.js';
import { openRegistryDatabase } from '../../src/registry/registry-database.js';
import { ManualTime } from './manual-time.js';
import { MemoryRecordsStore } from './memory-records-store.js';

/** Long timeouts: a machine that is busy with other tests must not look like an unavailable database. */
export const patient = { maxConnections: 10, connectTimeoutSeconds: 120, statementTimeoutSeconds: 120 };

/** A session that never holds the lock. It simulates a registry of an earlier release. */
export const withoutLock = openSession({ url: 'sqlite::memory:' });

/** A database, an in-memory store, and projectors between the two; a change wakes no projector. */
export async function projectionFixture(t: Test, url: string) {
  const time = new ManualTime();
  const store = new MemoryRecordsStore();
  const logged: { details: object; message: string }[] = [];
  const log = (details: object, message: string): void => void logged.push({ details, message });
  let count = 0;
  const random = (size: number): Buffer =>
    createHash('shake256', { outputLength: size })
      .update(`${(count += 1)}`)
      .digest();
  const newGeneration = (): string => `generation-${(count += 1)}`;
  const database = await openRegistryDatabase({ url, pool: patient, generation: 'generation-0' });
  const parts = {
    database,
    session: withoutLock,
    store,
    clock: time,
    timers: time,
    newGeneration,
    monotonic: time.monotonic,
    longestLifetimeMilliseconds: 31_000,
  };
  const projector = new Projector({ ...parts, holder: 'projector', logger: { error: log, warn: log, info: log } });
  t.teardown(async () => {
    await projector.stop();
    await database.destroy();
  });
  return {
    ...{ database, logged, projector, store, time },
    context: {
      ...{ database, clock: time, random, pepper: null, resources: new Set<string>(), onChange: () => undefined },
      confirm: () => Promise.reject(new Error('nobody waits here')),
      revision: async () => (await database.selectFrom('revision').select('value').executeTakeFirstOrThrow()).value,
    },
    projection: (holder: string, session = withoutLock, logger?: Logger): Projection =>
      new Projection({ ...parts, holder, session, logger }),
    /** Creates a projector with a separate session, like that of another process. */
    projectorOn: (holder: string): Projector => {
      const session = openSession({ url }, () => {
        one.wake();
      });
      const one = new Projector({ ...parts, holder, session });
      t.teardown(async () => {
        await one.stop();
        await session.close();
      });
      return one;
    },
    /** Inserts merchants without change records, as if they had existed for a long time. */
    insertMerchants: async (length: number): Promise<void> => {
      const common = { name: 'x', status: 'ACTIVE', go_live: 1, ip_allowlist: null, origin_allowlist: null };
      const moments = { created_revision: 0, revision: 0, created_at: 0, updated_at: 0 };
      const rows = Array.from({ length }, (_, index) => ({ id: `m_${index}`, ...common, ...moments }));
      await database.insertInto('merchants').values(rows).execute();
    },
  };
}
