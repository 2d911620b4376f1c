// A rolling restart under load: three gateways on one Redis behind HAProxy as a TCP balancer, restarted one after the other
// again and again while clients on keep-alive connections send requests over TLS. `npm run bench:restart`, by hand; needs
// haproxy, redis-server and openssl. Every request must be answered 200, and each POST must have arrived exactly once.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';

const total = Number(process.env.REQUESTS ?? 100_000);
const connections = Number(process.env.CONNECTIONS ?? 64);
const longestMilliseconds = 15 * 60_000;
const directory = mkdtempSync(path.join(tmpdir(), 'merchant-gateway-restart-'));
const children = new Set();
const inDirectory = (name) => path.join(directory, name);

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function start(command, args, options = {}) {
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit'], ...options });
  children.add(child);
  child.once('exit', () => children.delete(child));
  return child;
}

async function until(what, condition) {
  const end = Date.now() + 60_000;
  while (!(await condition().catch(() => false))) {
    if (Date.now() > end) throw new Error(`${what} did not come`);
    await sleep(20);
  }
}

const key = `svc_live_${'a'.repeat(49)}`;
const redisPort = await freePort();
start('redis-server', ['--port', String(redisPort), '--bind', '127.0.0.1', '--save', '', '--dir', directory]);
const redis = new Redis({ port: redisPort, host: '127.0.0.1', retryStrategy: () => 50 });
redis.on('error', () => undefined);
await until('Redis', async () => (await redis.ping()) === 'PONG');
const records = {
  [`mg:key:${createHash('sha256').update(key).digest('hex')}`]: {
    ...{
      keyId: 'key_1',
      merchantId: 'm_1',
      environment: 'live',
      status: 'ACTIVE',
      permissions: ['*'],
      expiresAt: null,
    },
    revision: 1,
  },
  'mg:merchant:m_1': {
    ...{ merchantId: 'm_1', name: 'Shop', status: 'ACTIVE', goLive: true, ipAllowlist: null, originAllowlist: null },
    revision: 1,
  },
  'mg:meta': { version: 1, generation: '01TEST', projectedAt: '2026-01-01T00:00:00.000Z' },
};
for (const [name, record] of Object.entries(records)) await redis.set(name, JSON.stringify(record));
await redis.set('mg:revision', '1');

const arrived = new Map();
const upstream = http.createServer((request, response) => {
  let body = '';
  request.on('data', (chunk) => (body += chunk));
  request.on('end', () => {
    if (request.method === 'POST') arrived.set(body, (arrived.get(body) ?? 0) + 1);
    response.setHeader('content-type', 'application/json');
    response.end('{"success":true,"message":"OK","data":null}');
  });
});
upstream.listen(0, '127.0.0.1');
await once(upstream, 'listening');

const pem = ['-keyout', inDirectory('key.pem'), '-out', inDirectory('cert.pem')];
const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
spawnSync('openssl', ['req', '-x509', ...curve, ...names, ...pem]);

const gateways = [];
for (let index = 0; index < 3; index += 1) {
  const [port, management] = [await freePort(), await freePort()];
  const url = `http://127.0.0.1:${upstream.address().port}`;
  const config = {
    listen: {
      https: { host: '127.0.0.1', port, certFile: inDirectory('cert.pem'), keyFile: inDirectory('key.pem') },
      http: null,
      management: { host: '127.0.0.1', port: management },
    },
    // Generous: a machine that is busy with the load itself must not look like a Redis that is away.
    keyStore: { redis: { url: `redis://127.0.0.1:${redisPort}`, commandTimeoutMilliseconds: 5000 } },
    torExits: { enabled: false },
    upstreams: { transactions: { url }, payouts: { url }, customers: { url } },
    accessLog: { destination: inDirectory(`access-${index}.log`) },
    limits: { drainDelaySeconds: 4 },
    log: { level: 'error' },
  };
  writeFileSync(inDirectory(`gateway-${index}.yaml`), JSON.stringify(config));
  gateways.push({ index, port, management, child: null });
}
async function startGateway(gateway) {
  gateway.child = start(process.execPath, [
    'dist/cli/main.js',
    'gateway',
    '--config',
    inDirectory(`gateway-${gateway.index}.yaml`),
  ]);
  await until('a gateway', async () => (await fetch(`http://127.0.0.1:${gateway.management}/readyz`)).ok);
}
await Promise.all(gateways.map(startGateway));

const front = await freePort();
const servers = gateways.map(
  ({ index, port, management }) =>
    `  server g${index} 127.0.0.1:${port} check port ${management} inter 500ms fall 2 rise 1`,
);
writeFileSync(
  inDirectory('haproxy.cfg'),
  `defaults
  mode tcp
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  timeout check 10s
  retries 3
  option redispatch 1
frontend front
  bind 127.0.0.1:${front}
  default_backend gateways
backend gateways
  balance leastconn
  option httpchk GET /readyz
${servers.join('\n')}
`,
);
start('haproxy', ['-q', '-db', '-f', inDirectory('haproxy.cfg')], { stdio: 'ignore' });
await until('HAProxy', async () => {
  const socket = net.connect(front, '127.0.0.1');
  await once(socket, 'connect');
  socket.destroy();
  return true;
});

const agent = new https.Agent({
  keepAlive: true,
  maxSockets: connections,
  ca: readFileSync(inDirectory('cert.pem')),
  servername: 'localhost',
});
const failures = new Map();
let [sent, done] = [0, 0];
const posted = [];
function ask(number) {
  const isPost = number % 2 === 0;
  const body = isPost ? `{"amount":${number}}` : '';
  if (isPost) posted.push(body);
  const headers = {
    'x-api-key': key,
    ...(isPost ? { 'content-type': 'application/json', 'content-length': body.length } : {}),
  };
  const options = {
    port: front,
    host: '127.0.0.1',
    path: isPost ? '/v1/payouts' : '/v1/transactions',
    method: isPost ? 'POST' : 'GET',
    agent,
    headers,
  };
  return new Promise((resolve) => {
    const request = https.request(options, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode === 200 ? null : `status ${response.statusCode}`));
      response.on('error', (error) => resolve(`during the answer: ${error.code}`));
    });
    request.on('error', (error) =>
      resolve(`${error.code ?? error.message}${request.reusedSocket ? ' on a kept connection' : ''}`),
    );
    request.end(body);
  });
}
async function client() {
  while (sent < total) {
    const failure = await ask((sent += 1));
    done += 1;
    if (failure !== null) failures.set(failure, (failures.get(failure) ?? 0) + 1);
  }
}

let restarts = 0;
async function restart() {
  while (done < total) {
    for (const gateway of gateways) {
      if (done >= total) return;
      const exited = once(gateway.child, 'exit');
      gateway.child.kill('SIGTERM');
      const [status] = await exited;
      if (status !== 0) failures.set(`a gateway ended with ${status}`, 1);
      await startGateway(gateway);
      restarts += 1;
      await sleep(500);
    }
  }
}

const timer = setTimeout(() => {
  console.error(`not over after ${longestMilliseconds / 60_000} minutes: ${done} of ${total}`);
  for (const child of children) child.kill('SIGKILL');
  process.exit(1);
}, longestMilliseconds);
const begin = performance.now();
const load = Promise.all(Array.from({ length: connections }, client));
await Promise.all([load, restart()]);
const seconds = (performance.now() - begin) / 1000;
clearTimeout(timer);

const failed = [...failures.values()].reduce((sum, count) => sum + count, 0);
const lost = posted.filter((body) => !arrived.has(body)).length;
const repeated = [...arrived.values()].filter((count) => count > 1).length;
console.log(
  `${done} requests in ${seconds.toFixed(1)} s (${Math.round(done / seconds)} a second) on ${connections} keep-alive connections, ${restarts} restarts`,
);
console.log(
  `${failed} failed; of ${posted.length} POSTs ${lost} did not arrive and ${repeated} arrived more than once`,
);
for (const [failure, count] of failures) console.log(`  ${count} × ${failure}`);
redis.disconnect();
upstream.closeAllConnections();
upstream.close();
agent.destroy();
const ends = [...children].map((child) => once(child, 'exit'));
for (const child of children) child.kill('SIGTERM');
await Promise.all(ends);
rmSync(directory, { recursive: true, force: true });
process.exit(failed + lost + repeated === 0 ? 0 : 1);
