import { spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { freePort } from '../../adapters/redis-server.js';
import { merchantsByLookupId } from '../compare/place.js';
import { startProgram } from '../compare/processes.js';
import type { Subject } from './subject.js';

/** Debian installs HAProxy in /usr/sbin, which is not in every user's PATH. */
const env = { PATH: `${process.env.PATH ?? ''}:/usr/sbin` };

/** HAProxy with one thread and the keys in a map. Without an access log: HAProxy cannot write a log to a file. */
export const haproxy: Subject = {
  ...{ name: 'haproxy', title: 'HAProxy' },
  missing: () => (spawnSync('haproxy', ['-v'], { env }).status === 0 ? null : 'haproxy is not installed'),
  async start(place) {
    const directory = await place.directory('haproxy');
    const file = (name: string): string => path.join(directory, name);
    const [httpPort, httpsPort] = [await freePort(), await freePort()];
    const records = [...merchantsByLookupId(place)].map((record) => record.join(' '));
    await writeFile(file('records.map'), `${records.join('\n')}\n`);
    // HAProxy needs certificate and private key in one file.
    const pem = file('both.pem');
    await writeFile(pem, `${place.ca}\n${place.privateKey}\n`, { mode: 0o600 });
    const denial = (message: string): string =>
      `http-request return status 401 content-type "application/json; charset=utf-8" ` +
      `hdr cache-control no-store string '{"success":false,"message":"${message}","data":null}'`;
    await writeFile(
      file('haproxy.cfg'),
      `global
  nbthread 1
  tune.ssl.default-dh-param 2048
defaults
  mode http
  timeout connect 5s
  timeout client 75s
  timeout server 75s
  http-reuse always
frontend front
  bind 127.0.0.1:${httpPort}
  bind 127.0.0.1:${httpsPort} ssl crt ${pem} alpn http/1.1
  ${denial('API Key is required')} unless { req.hdr(x-api-key) -m found }
  ${denial('Invalid API key format')} unless { req.hdr(x-api-key) -m beg svc_live_ }
  http-request set-var(txn.merchant) req.hdr(x-api-key),sha2(256),hex,lower,map(${file('records.map')})
  ${denial('Invalid API Key')} unless { var(txn.merchant) -m found }
  http-request del-header x-api-key
  http-request set-header x-merchant-id %[var(txn.merchant)]
  http-request replace-path /v1(.*) \\1
  default_backend service
backend service
  server upstream 127.0.0.1:${place.upstreamPort}
`,
    );
    const { pid } = await startProgram(place.t, {
      ...{ command: 'haproxy', args: ['-db', '-f', file('haproxy.cfg')] },
      ...{ isSubject: true, started: httpPort, env },
    });
    return { pid, httpPort, httpsPort, logFile: null };
  },
};
