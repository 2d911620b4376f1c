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

/** Who is told of what becomes of the list. */
export interface TorExitEvents extends Pick<MaintenanceOptions, 'onRefused' | 'onList' | 'onProblem' | 'onRecovered'> {
  /** Told of each failure of the connection to Redis. */
  readonly onConnectionError: (error: Error) => void;
}

const connectMilliseconds = 5_000;
/** For a whole list, with redirects. */
const fetchMilliseconds = 30_000;
const hourMilliseconds = 3_600_000;

/**
 * Opens the list of Tor exits that the configuration describes. Nothing is loaded yet.
 * @param follows whether fetching is left to another process of this machine, and its snapshot is taken over
 * @throws OperatorError for a file with a secret of Redis that cannot be read
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
    // Twice within the age, at least, so that one failure does not make a list too old.
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

/** A snapshot that another process writes. */
function onlyRead(snapshot: SnapshotFile): Pick<SnapshotFile, 'readChanged' | 'write'> {
  return { readChanged: () => snapshot.readChanged(), write: () => Promise.resolve() };
}

/** What the gateways of a cluster share, for one of them that is never the fetcher. */
function onlyFollowed(shared: SharedExitLists | null): SharedExitLists {
  return {
    read: () => shared?.read() ?? Promise.resolve(null),
    claim: () => Promise.resolve(null),
    close: () => shared?.close() ?? Promise.resolve(),
  };
}
