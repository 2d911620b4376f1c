import type { Problem } from './config-error.js';
import { bytesOfKey, bytesOfMerchant, heapFactor, mebibyte, planMemory } from './memory-plan.js';
import type { Config } from './schema.js';

/**
 * What the operator of a command should know of a configuration with which it starts.
 * @param processes how many worker processes a gateway has
 */
export function configNotes(command: ServerCommand, config: Config, processes = 1): Problem[] {
  const { kind, redis, cache } = config.keyStore;
  const ofGateway = command === 'gateway' ? reducedLimits(config, processes) : [];
  if (command === 'services' || kind === 'memory') return ofGateway;
  return [...replicaNotes(redis), ...(command === 'gateway' ? [memoryNote(cache)] : []), ...ofGateway];
}

/** Limits that memory allows only in part. No error: a configuration that was valid before there was `limits.memory` stays valid. */
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
        `${configured} do not fit in ${Math.floor(memory / mebibyte)} MiB, which the process may take: it uses ${allowed}. ` +
        'Give it more memory (limits.memory, or the limit of its container), or lower the number',
    }));
}

function memoryNote({ maxEntries, preload }: Config['keyStore']['cache']): Problem {
  const [keys, merchants] = [bytesOfKey, bytesOfMerchant].map((bytes) =>
    Math.ceil((maxEntries * bytes * heapFactor) / mebibyte),
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

/** The commands that run as long as they are let, each with its own part of a configuration. */
export const serverCommands = ['gateway', 'registry', 'services'] as const;

/** One of them. */
export type ServerCommand = (typeof serverCommands)[number];

/** What keeps one command, and perhaps no other, from starting with a configuration that is valid as such. */
export function startProblems(command: ServerCommand, config: Config): Problem[] {
  if (command === 'gateway') return gatewayProblems(config);
  if (command === 'services' || config.registry.tokenFile !== null) return [];
  return [{ path: 'registry.tokenFile', message: "expected the path of a file with the administrators' token" }];
}

/** What keeps the gateway, and no other command, from starting with a configuration that is valid as such. */
export function gatewayProblems({ geoip, keyStore, listen, torExits, trustedProxies }: Config): Problem[] {
  const problems: Problem[] = [];
  if (listen.https === null && trustedProxies.length === 0) {
    problems.push({
      path: 'listen.https',
      message:
        'without a TLS listener and without trustedProxies no request can ever be accepted: ' +
        'expected certFile and keyFile, or the proxies in front that terminate TLS in trustedProxies',
    });
  }
  if (listen.https === null && listen.http === null) {
    problems.push({ path: 'listen', message: 'expected at least one of https and http' });
  }
  if (keyStore.kind === 'memory' && keyStore.memory.recordsFile === null) {
    problems.push({ path: 'keyStore.memory.recordsFile', message: 'expected the path of a file for the kind memory' });
  }
  if (torExits.enabled && torExits.sources.length === 0 && geoip.anonymousIpFile === null) {
    problems.push({
      path: 'torExits.sources',
      message: 'expected at least one source, or geoip.anonymousIpFile, or torExits.enabled: false',
    });
  }
  return problems;
}
