import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { startRedis, withoutRedis } from '../../adapters/redis-server.js';
import type { Place } from '../compare/place.js';
import { startProgram } from '../compare/processes.js';
import { imageEnvironment } from '../image-environment.js';
import { changesOf } from './gateway-changes.js';
import { torExits, writeRecords } from './gateway-records.js';
import type { Subject } from './subject.js';

/** BENCH_PROFILE=DIR: the gateway writes a CPU profile into this directory when it ends. */
const { BENCH_PROFILE: profiles = '' } = process.env;
const profiling = profiles === '' ? [] : ['--cpu-prof', '--cpu-prof-dir', path.resolve(profiles)];

const product = ['dist/cli/main.js', 'gateway', '--config'];

/** A variant of the gateway. */
interface Kind {
  readonly name: string;
  readonly title: string;
  readonly log: boolean;
  /** The arguments of `node` before the configuration file. Absent: those of the product. */
  readonly program?: readonly string[];
  /** Number of known keys; absent: the scenario's number. */
  readonly keys?: number;
  /** Whether keys and the Tor exit list change during the measurement. */
  readonly changes?: boolean;
}

/** Creates the subject for a variant of this gateway, with every check enabled. */
export function gateway({ name, title, log, program = product, keys, changes = false }: Kind): Subject {
  return {
    ...{ name, title, ...(keys === undefined ? {} : { keys }) },
    missing: () => (withoutRedis === false ? null : 'redis-server is not installed'),
    async start(place) {
      const directory = await place.directory(name);
      const redis = await startRedis(place.t);
      await writeRecords(redis.client, place);
      const { configFile, logFile, torFile } = await writeConfig(place, directory, redis.url);
      const { pid, found } = await startProgram(place.t, {
        ...{ command: process.execPath, args: [...profiling, ...program, configFile], isSubject: true },
        env: imageEnvironment,
        started: /(\{[^\n]+"the gateway accepts requests"\})/,
      });
      const { http, https } = JSON.parse(found) as Record<'http' | 'https', { readonly port: number }>;
      return {
        ...{ pid, httpPort: http.port, httpsPort: https.port, logFile: log ? logFile : null },
        ...(changes ? { disturb: changesOf(redis.client, place, torFile) } : {}),
      };
    },
  };
}

/**
 * Writes a configuration. It has the defaults, except for addresses, files and the trusted proxy. The load generator
 * acts as that proxy.
 */
async function writeConfig(place: Place, directory: string, redisUrl: string) {
  const file = (name: string): string => path.join(directory, name);
  const logFile = file('access.log');
  await writeFile(file('log-secret'), randomBytes(32).toString('hex'), { mode: 0o600 });
  const torFile = file('tor-exits.txt');
  await writeFile(torFile, `${torExits.join('\n')}\n`);
  const { certFile, keyFile, upstreamPort } = place;
  const upstream = { url: `http://127.0.0.1:${upstreamPort}` };
  const listener = { host: '127.0.0.1', port: 0 };
  const config = {
    listen: { https: { ...listener, certFile, keyFile }, http: listener, management: listener },
    trustedProxies: ['127.0.0.0/8'],
    keyStore: { redis: { url: redisUrl } },
    torExits: { sources: [torFile], snapshotFile: file('tor-exits.json') },
    accessLog: { destination: logFile, secretFile: file('log-secret') },
    upstreams: { transactions: upstream, payouts: upstream, customers: upstream },
  };
  await writeFile(file('gateway.yaml'), JSON.stringify(config));
  return { configFile: file('gateway.yaml'), logFile, torFile };
}
