import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { startRedis, withoutRedis } from '../../adapters/redis-server.js';
import type { Place } from '../compare/place.js';
import { startProgram } from '../compare/processes.js';
import { writeRecords } from './gateway-records.js';
import type { Subject } from './subject.js';

/** As many as the Tor project lists, in a range that none of the callers is in. */
const torExits = Array.from({ length: 1300 }, (_, index) => `185.220.${100 + Math.floor(index / 250)}.${index % 250}`);

/** This gateway, with every check on, and its access log as said. */
export function gateway(name: string, title: string, log: 'on' | 'off'): Subject {
  return {
    ...{ name, title },
    missing: () => (withoutRedis === false ? null : 'redis-server is not installed'),
    async start(place) {
      const directory = await place.directory(name);
      const redis = await startRedis(place.t);
      await writeRecords(redis.client, place);
      const { configFile, logFile } = await writeConfig(place, directory, redis.url);
      const command =
        log === 'on'
          ? ['dist/cli/main.js', 'gateway', '--config', configFile]
          : ['test/bench/subjects/gateway-log-off.mjs', configFile];
      const { pid, found } = await startProgram(place.t, {
        ...{ command: process.execPath, args: command, isSubject: true },
        started: /(\{[^\n]+"the gateway takes requests"\})/,
      });
      const { http, https } = JSON.parse(found) as Record<'http' | 'https', { readonly port: number }>;
      return { pid, httpPort: http.port, httpsPort: https.port, logFile: log === 'on' ? logFile : null };
    },
  };
}

/** The defaults, but for what has to be told: addresses, files and the proxy in front, which the load plays. */
async function writeConfig(place: Place, directory: string, redisUrl: string) {
  const file = (name: string): string => path.join(directory, name);
  const logFile = file('access.log');
  await writeFile(file('log-secret'), randomBytes(32).toString('hex'), { mode: 0o600 });
  await writeFile(file('tor-exits.txt'), `${torExits.join('\n')}\n`);
  const { certFile, keyFile, upstreamPort } = place;
  const upstream = { url: `http://127.0.0.1:${upstreamPort}` };
  const listener = { host: '127.0.0.1', port: 0 };
  const config = {
    listen: { https: { ...listener, certFile, keyFile }, http: listener, management: listener },
    trustedProxies: ['127.0.0.0/8'],
    // Generous: a machine that is busy with the load must not look like a Redis that is away.
    keyStore: { redis: { url: redisUrl, commandTimeoutMilliseconds: 5000 } },
    torExits: { sources: [file('tor-exits.txt')], snapshotFile: file('tor-exits.json') },
    accessLog: { destination: logFile, secretFile: file('log-secret') },
    upstreams: { transactions: upstream, payouts: upstream, customers: upstream },
  };
  await writeFile(file('gateway.yaml'), JSON.stringify(config));
  return { configFile: file('gateway.yaml'), logFile };
}
