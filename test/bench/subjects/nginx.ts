import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { freePort } from '../../adapters/redis-server.js';
import { startProgram } from '../compare/processes.js';
import { merchantsByLookupId } from '../compare/place.js';
import type { Subject } from './subject.js';

const modules = ['ndk_http_module.so', 'ngx_http_lua_module.so'].map((name) => `/usr/lib/nginx/modules/${name}`);
/** Debian installs nginx in /usr/sbin, which is not in every user's PATH. */
const env = { PATH: `${process.env.PATH ?? ''}:/usr/sbin` };

/** nginx with one worker, the key check in Lua, and a buffered access log like the gateway's. */
export const nginx: Subject = {
  ...{ name: 'nginx', title: 'nginx + Lua, access log' },
  missing() {
    if (spawnSync('nginx', ['-v'], { env }).status !== 0) return 'nginx is not installed';
    const missing = modules.some((file) => !existsSync(file));
    return missing ? 'its Lua module is not installed (Debian: libnginx-mod-http-lua)' : null;
  },
  async start(place) {
    const directory = await place.directory('nginx');
    const file = (name: string): string => path.join(directory, name);
    const [httpPort, httpsPort] = [await freePort(), await freePort()];
    const records = [...merchantsByLookupId(place)].map((record) => record.join(' '));
    await writeFile(file('records.txt'), `${records.join('\n')}\n`);
    const settings: Record<string, string> = {
      ...{ modules: modules.map((name) => `load_module ${name};`).join('\n'), directory },
      ...{ http: `${httpPort}`, https: `${httpsPort}` },
      ...{ certFile: place.certFile, keyFile: place.keyFile, upstream: `${place.upstreamPort}` },
      ...{ lua: path.resolve('test/bench/subjects'), connections: '4096' },
    };
    await writeFile(file('nginx.conf'), configuration(settings));
    const { pid } = await startProgram(place.t, {
      ...{ command: 'nginx', args: ['-p', directory, '-c', file('nginx.conf'), '-e', file('error.log')] },
      ...{ isSubject: true, started: httpPort, env },
    });
    return { pid, httpPort, httpsPort, logFile: file('access.log') };
  },
};

function configuration(settings: Record<string, string>): string {
  const of = (name: string): string => settings[name] ?? '';
  return `${of('modules')}
worker_processes 1;
daemon off;
pid ${of('directory')}/nginx.pid;
events { worker_connections ${of('connections')}; }
http {
  lua_package_path "${of('lua')}/?.lua;;";
  init_by_lua_block { check = require("nginx-key-check").open("${of('directory')}/records.txt") }
  log_format json escape=json '{"@timestamp":"$time_iso8601","id":"$request_id","method":"$request_method","path":"$uri",'
    '"status":$status,"bytes":$body_bytes_sent,"client":"$http_x_forwarded_for","source":"$remote_addr",'
    '"merchant":"$merchant","tls":"$ssl_protocol","agent":"$http_user_agent","duration":$request_time,'
    '"upstream":"$upstream_response_time"}';
  access_log ${of('directory')}/access.log json buffer=64k flush=1s;
  keepalive_requests 1000000000;
  keepalive_timeout 75s;
  client_max_body_size 1m;
  client_body_temp_path ${of('directory')}/body;
  proxy_temp_path ${of('directory')}/proxy;
  fastcgi_temp_path ${of('directory')}/fastcgi;
  uwsgi_temp_path ${of('directory')}/uwsgi;
  scgi_temp_path ${of('directory')}/scgi;
  proxy_buffers 16 8k;
  ssl_certificate ${of('certFile')};
  ssl_certificate_key ${of('keyFile')};
  ssl_session_cache shared:tls:10m;
  upstream service { server 127.0.0.1:${of('upstream')}; keepalive 256; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:${of('http')};
    listen 127.0.0.1:${of('https')} ssl;
    set $merchant "";
    location /v1/ {
      access_by_lua_block { check() }
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Api-Key "";
      proxy_set_header X-Merchant-Id $merchant;
      proxy_set_header X-Request-Id $request_id;
      proxy_pass http://service/;
    }
  }
}
`;
}
