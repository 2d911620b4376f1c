import { RedisExitLists } from '../../adapters/redis/redis-exit-lists.js';
import { exitSourceOf } from '../../adapters/tor/exit-source.js';
import { fetchList } from '../../adapters/tor/fetch-list.js';
import { readListFile, SnapshotFile } from '../../adapters/tor/list-files.js';
import { MaintainedTorExits, type MaintenanceOptions } from '../../adapters/tor/maintained-tor-exits.js';
import type { SharedExitLists } from '../../adapters/tor/source-lists.js';
import type { Config } from '../../config/schema.js';
import { compileIpRanges } from '../../policy/ip-ranges.js';
import { Agent } from 'undici';
import { redisAddressOf } from './redis-address.js';
import { systemClock } from './system-clock.js';

/** Callbacks for events of the Tor exit list. */
export interface TorExitEvents extends Pick<MaintenanceOptions, 'onRefused' | 'onList' | 'onProblem' | 'onRecovered'> {
  /** Called with each error of the Redis connection. */
  readonly onConnectionError: (error: Error) => void;
}

const connectMilliseconds = 5_000;
/** Timeout of one fetch, including redirects. */
const fetchMilliseconds = 30_000;
const hourMilliseconds = 3_600_000;

/**
 * Opens the configured Tor exit list without loading it.
 * @param follows true if another process on this machine fetches the list; this process then never fetches or writes it
 * @throws OperatorError for a Redis secret file that cannot be read
 */
export async function openTorExits(
  config: Config,
  events: TorExitEvents,
  follows = false,
): Promise<MaintainedTorExits> {
  const { torExits, keyStore, trustedProxies } = config;
  const { redis } = keyStore;
  const dispatcher = new Agent({ connect: { timeout: connectMilliseconds, rejectUnauthorized: true } });
  const maxAgeMilliseconds = torExits.maxAgeHours * hourMilliseconds;
  const snapshot = new SnapshotFile(torExits.snapshotFile);
  const shared =
    keyStore.kind === 'memory'
      ? null
      : new RedisExitLists(await redisAddressOf(redis), redis.prefix, events.onConnectionError);
  return new MaintainedTorExits({
    sources: torExits.sources.map((entry) => exitSourceOf(entry, torExits.allowReserved)),
    rules: { allowReserved: torExits.allowReserved, trustedProxies: compileIpRanges(trustedProxies) },
    // Refresh at least twice within the maximum age, so that one failed fetch does not make the list too old.
    refreshMilliseconds: Math.min(torExits.refreshMinutes * 60_000, maxAgeMilliseconds / 2),
    maxAgeMilliseconds,
    denyWhenUnavailable: torExits.whenUnavailable === 'deny',
    snapshot: follows ? onlyRead(snapshot) : snapshot,
    shared: follows ? onlyFollowed(shared) : shared,
    clock: systemClock,
    random: Math.random,
    read: ({ location }, known, signal) =>
      'file' in location
        ? readListFile(location.file)
        : fetchList(location.url, known, {
            dispatcher,
            signal: AbortSignal.any([signal, AbortSignal.timeout(fetchMilliseconds)]),
          }),
    ...events,
  });
}

/** Returns a view of a snapshot that another process writes. The `write` of the view does nothing. */
function onlyRead(snapshot: SnapshotFile): Pick<SnapshotFile, 'readChanged' | 'write'> {
  return { readChanged: () => snapshot.readChanged(), write: () => Promise.resolve() };
}

/**
 * Returns read-only access to the lists that gateways share in Redis. A process may fetch only after a successful
 * `claim`. Here `claim` always fails, so this process only reads what other processes have fetched.
 */
function onlyFollowed(shared: SharedExitLists | null): SharedExitLists {
  return {
    read: () => shared?.read() ?? Promise.resolve(null),
    claim: () => Promise.resolve(null),
    close: () => shared?.close() ?? Promise.resolve(),
  };
}
