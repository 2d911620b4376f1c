import type { Problem } from './config-error.js';
import type { Config } from './schema.js';
import type { ServerCommand } from './start-problems.js';

/** What the operator of a command should know of a configuration with which it starts. */
export function configNotes(command: ServerCommand, { keyStore: { kind, redis } }: Config): Problem[] {
  const isOneName = redis.sentinel === null && redis.cluster === null;
  if (command === 'services' || kind === 'memory' || !isOneName || redis.replicas !== null) return [];
  const message =
    'is not set: if keyStore.redis.url is one name for a pair that fails over, as managed services offer it, Redis may not show ' +
    'its replicas, and a gateway that is left with the former master goes on accepting revoked keys. Set the number of ' +
    'replicas, or 0 if there are none';
  return [{ path: 'keyStore.redis.replicas', message }];
}
