import type { Problem } from './config-error.js';
import { bytesOfKey, bytesOfMerchant, heapFactor, mebibyte, planMemory } from './memory-plan.js';
import { ownPaths } from '../policy/route-paths.js';
import { unprotectedRegistry } from './rules/registry-rules.js';
import type { Config } from './schema.js';

/**
 * Returns notes for the operator about a valid configuration. Includes only notes that concern the command.
 * @param processes number of worker processes of a gateway
 */
export function configNotes(command: ServerCommand, config: Config, processes = 1): Problem[] {
  const { kind, redis, cache } = config.keyStore;
  const gatewayNotes = command === 'gateway' ? [...replacedPaths(config), ...reducedLimits(config, processes)] : [];
  if (command === 'services') return unverifiedNotes(config);
  if (kind === 'memory') return gatewayNotes;
  return [...replicaNotes(redis), ...(command === 'gateway' ? [memoryNote(cache)] : []), ...gatewayNotes];
}

/**
 * Returns a note if the configuration has published keys, but the services verify nothing with them. This is not an
 * error: gateways with the same configuration may publish their first key before they sign with it.
 */
function unverifiedNotes({ identity }: Config): Problem[] {
  const { signingKeyFile, publishedKeyFiles, publicKeysUrl } = identity;
  if (signingKeyFile !== null || publicKeysUrl !== null || publishedKeyFiles.length === 0) return [];
  const message =
    'has no effect on the services, because neither identity.signingKeyFile nor identity.publicKeysUrl is set. The services verify no assertions, and accept requests from all processes on this machine';
  return [{ path: 'identity.publishedKeyFiles', message }];
}

/**
 * Returns notes for routes that replace one of the gateway's own paths. Such routes are not errors, because a service
 * could have used the path before a gateway release introduced its own response there.
 */
function replacedPaths({ routes }: Config): Problem[] {
  return routes.flatMap(({ path }, index) =>
    ownPaths.some((own) => own === path)
      ? [{ path: `routes[${index}].path`, message: `replaces the gateway's own response to ${path}` }]
      : [],
  );
}

/**
 * Returns notes for limits that the gateway reduces because they do not fit into its memory. Such limits are not
 * errors: otherwise, a configuration without `limits.memory` would be invalid on a small machine.
 */
function reducedLimits(config: Config, processes: number): Problem[] {
  const { allows, memory } = planMemory(config, processes);
  const { limits, keyStore, throttle } = config;
  const each: readonly (readonly [string, number, number])[] = [
    ['limits.connections', limits.connections, allows.connections],
    ['keyStore.cache.maxEntries', keyStore.cache.maxEntries, allows.maxEntries],
    ['keyStore.cache.unknownMaxEntries', keyStore.cache.unknownMaxEntries, allows.unknownMaxEntries],
    ['throttle.maxSources', throttle.maxSources, allows.maxSources],
  ];
  return each
    .filter(([, configured, allowed]) => allowed < configured)
    .map(([path, configured, allowed]) => ({
      path,
      message:
        `is ${configured}, but only ${allowed} fit into the ${Math.floor(memory / mebibyte)} ` +
        `MiB of memory that the process may use, so the gateway uses ${allowed}. Raise limits.memory or the memory limit of the container, or lower this option`,
    }));
}

function memoryNote({ maxEntries, preload }: Config['keyStore']['cache']): Problem {
  const [keys, merchants] = [bytesOfKey, bytesOfMerchant].map((bytes) =>
    Math.ceil((maxEntries * bytes * heapFactor) / mebibyte),
  );
  const when = preload
    ? 'A gateway reads all records of its environment into this cache when it starts'
    : 'A gateway reads a record into this cache at its first lookup';
  const message =
    `is ${maxEntries}. That many cached keys take about ${keys ?? 0} MiB of memory in each gateway process, and that ` +
    `many cached merchants with short allowlists take about ${merchants ?? 0} MiB. ${when}`;
  return { path: 'keyStore.cache.maxEntries', message };
}

function replicaNotes(redis: Config['keyStore']['redis']): Problem[] {
  const isOneName = redis.sentinel === null && redis.cluster === null;
  if (!isOneName || redis.replicas !== null) return [];
  const message =
    'is not set. If keyStore.redis.url is the host name of a managed Redis service with failover, Redis may not report its replicas. After a failover, a gateway that stays connected to the former master would then keep accepting revoked keys. Set the number of replicas, or 0 if there are no replicas';
  return [{ path: 'keyStore.redis.replicas', message }];
}

/** The commands that run a server until it is stopped. Each uses only a part of the configuration. */
export const serverCommands = ['gateway', 'registry', 'services'] as const;

/** Name of a command that runs a server. */
export type ServerCommand = (typeof serverCommands)[number];

/** Returns problems that keep this command from starting, although the configuration is valid for other commands. */
export function startProblems(command: ServerCommand, config: Config): Problem[] {
  if (command === 'gateway') return gatewayProblems(config);
  if (command === 'services') return [];
  const { witness, tokenFile, bootstrap } = config.registry;
  const ofWitness = witness !== null && config.keys.recordSecretFile === null ? [needsSecret('registry.witness')] : [];
  const ofListener = unprotectedRegistry(config).map(({ path, message }) => ({ path, message }));
  if (tokenFile !== null || bootstrap === 'off') return [...ofListener, ...ofWitness];
  return [
    ...ofListener,
    ...ofWitness,
    {
      path: 'registry.tokenFile',
      message: 'expected the path of a file with the shared token of administrators, or registry.bootstrap: off',
    },
  ];
}

/**
 * Returns the problem of a missing record secret. Without that secret, an attacker with write access to Redis could
 * register any public key as the key of a gateway.
 */
function needsSecret(path: string): Problem {
  const message =
    'requires keys.recordSecretFile, because gateways and the registry authenticate their messages with that secret. Set keys.recordSecretFile, or set this option to null';
  return { path, message };
}

/** Returns problems that keep the gateway from starting, although the configuration is valid for other commands. */
export function gatewayProblems(config: Config): Problem[] {
  const { accessLog, geoip, keyStore, keys, listen, torExits, trustedProxies } = config;
  const problems: Problem[] = [];
  const witness = accessLog.checkpoints?.witness ?? null;
  const path = 'accessLog.checkpoints.witness';
  if (witness !== null && keyStore.kind !== 'redis')
    problems.push({ path, message: 'requires Redis, but keyStore.kind is memory; expected null' });
  else if (witness !== null && keys.recordSecretFile === null) problems.push(needsSecret(path));
  if (listen.https === null && trustedProxies.length === 0) {
    problems.push({
      path: 'listen.https',
      message:
        'without a TLS listener and without trustedProxies the gateway would reject every request: ' +
        'expected certFile and keyFile, or the addresses of TLS-terminating proxies in trustedProxies',
    });
  }
  if (listen.https === null && listen.http === null) {
    problems.push({ path: 'listen', message: 'expected at least one of https and http' });
  }
  if (keyStore.kind === 'memory' && keyStore.memory.recordsFile === null) {
    problems.push({
      path: 'keyStore.memory.recordsFile',
      message: 'expected the path of a file, because keyStore.kind is memory',
    });
  }
  if (torExits.enabled && torExits.sources.length === 0 && geoip.anonymousIpFile === null) {
    problems.push({
      path: 'torExits.sources',
      message: 'expected at least one source, or geoip.anonymousIpFile, or torExits.enabled: false',
    });
  }
  return problems;
}
