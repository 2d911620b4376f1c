// Redis with one merchant's records, a service that records what arrives, three gateways, and HAProxy in front of the
// gateways as a TCP balancer.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { Redis } from 'ioredis';
import { freePort, inDirectory, start, until } from './processes.mjs';

/** The merchant's key. */
export const key = `svc_live_${'a'.repeat(49)}`;

async function startRedis() {
  const port = await freePort();
  start('redis-server', ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', inDirectory('')]);
  const redis = new Redis({ port, host: '127.0.0.1', retryStrategy: () => 50 });
  redis.on('error', () => undefined);
  await until('Redis', async () => (await redis.ping()) === 'PONG');
  const ofKey = { keyId: 'key_1', merchantId: 'm_1', environment: 'live', status: 'ACTIVE', permissions: ['*'] };
  const lists = { ipAllowlist: null, originAllowlist: null };
  const records = {
    [`mg:key:${createHash('sha256').update(key).digest('hex')}`]: { ...ofKey, expiresAt: null, revision: 1 },
    'mg:merchant:m_1': { merchantId: 'm_1', name: 'Shop', status: 'ACTIVE', goLive: true, ...lists, revision: 1 },
    'mg:meta': { version: 1, generation: '01TEST', projectedAt: '2026-01-01T00:00:00.000Z' },
  };
  for (const [name, record] of Object.entries(records)) await redis.set(name, JSON.stringify(record));
  await redis.set('mg:revision', '1');
  redis.disconnect();
  return port;
}

/** A service that responds with 200 and counts each posted body. */
async function startService() {
  const arrived = new Map();
  const server = http.createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => (body += chunk));
    request.on('end', () => {
      if (request.method === 'POST') arrived.set(body, (arrived.get(body) ?? 0) + 1);
      response.setHeader('content-type', 'application/json');
      response.end('{"success":true,"message":"OK","data":null}');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, arrived, close };
}

function makeCertificate() {
  const pem = ['-keyout', inDirectory('key.pem'), '-out', inDirectory('cert.pem')];
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
  spawnSync('openssl', ['req', '-x509', ...curve, ...names, ...pem]);
  return readFileSync(inDirectory('cert.pem'));
}

async function prepareGateway(index, redisPort, url) {
  const [port, management] = [await freePort(), await freePort()];
  const config = {
    listen: {
      https: { host: '127.0.0.1', port, certFile: inDirectory('cert.pem'), keyFile: inDirectory('key.pem') },
      http: null,
      management: { host: '127.0.0.1', port: management },
    },
    keyStore: { redis: { url: `redis://127.0.0.1:${redisPort}` } },
    torExits: { enabled: false },
    upstreams: { transactions: { url }, payouts: { url }, customers: { url } },
    accessLog: { destination: inDirectory(`access-${index}.log`) },
    limits: { drainDelaySeconds: 4 },
    log: { level: 'error' },
  };
  writeFileSync(inDirectory(`gateway-${index}.yaml`), JSON.stringify(config));
  return { index, port, management, child: null };
}

/** Starts a gateway and waits until it is ready. */
export async function startGateway(gateway) {
  const file = inDirectory(`gateway-${gateway.index}.yaml`);
  gateway.child = start(process.execPath, ['dist/cli/main.js', 'gateway', '--config', file]);
  await until('a gateway', async () => (await fetch(`http://127.0.0.1:${gateway.management}/readyz`)).ok);
}

async function startBalancer(gateways) {
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
  start('haproxy', ['-q', '-db', '-f', inDirectory('haproxy.cfg')]);
  await until('HAProxy', async () => {
    const socket = net.connect(front, '127.0.0.1');
    await once(socket, 'connect');
    socket.destroy();
    return true;
  });
  return front;
}

/** Starts the whole deployment. */
export async function startDeployment() {
  const redisPort = await startRedis();
  const service = await startService();
  const ca = makeCertificate();
  const gateways = await Promise.all([0, 1, 2].map((index) => prepareGateway(index, redisPort, service.url)));
  await Promise.all(gateways.map(startGateway));
  return { service, ca, gateways, port: await startBalancer(gateways) };
}
