import { once } from 'node:events';
import { rename, symlink } from 'node:fs/promises';
import https from 'node:https';
import net, { type Socket } from 'node:net';
import path from 'node:path';
import tls, { type ConnectionOptions, type TLSSocket } from 'node:tls';
import fc from 'fast-check';
import t from 'tap';
import { offersSession } from '../../src/edge/tls/client-hello.js';
import { HandshakeRate } from '../../src/edge/tls/handshake-rate.js';
import { parseIpAddress } from '../../src/policy/ip-address.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import { makeCertificate } from '../edge/certificates.js';
import {
  ask,
  exchangeBytes,
  type GatewayUnderTest,
  liveKey,
  parseAnswer,
  requestBytes,
  startTestGateway,
  startUpstream,
} from '../edge/harness.js';

const local = { host: '127.0.0.1', servername: 'localhost', rejectUnauthorized: false };
/** So slow that nothing comes back within a test. */
const slow = { handshakesPerSecond: 1, handshakeBurst: 40 };

/** Connects; null where the connection is closed in place of a handshake. */
async function shake(gateway: GatewayUnderTest, options: ConnectionOptions = {}): Promise<TLSSocket | null> {
  const socket = tls.connect({ ...local, port: gateway.https, ...options });
  socket.on('error', () => undefined);
  return new Promise((resolve) => {
    socket.once('secureConnect', () => {
      resolve(socket);
    });
    socket.once('close', () => {
      resolve(null);
    });
  });
}

/** Connects until nothing is taken any more, and says how many were. */
async function exhaust(gateway: GatewayUnderTest, options: ConnectionOptions = {}): Promise<number> {
  let taken = 0;
  for (;;) {
    const socket = await shake(gateway, options);
    if (socket === null) return taken;
    taken += 1;
    socket.destroy();
  }
}

/** A session with a gateway, from a request on a connection of its own. */
async function sessionOf(gateway: GatewayUnderTest, options: ConnectionOptions = {}): Promise<Buffer> {
  const socket = tls.connect({ ...local, port: gateway.https, ...options });
  socket.on('error', () => undefined).resume();
  socket.write(requestBytes({}));
  const [session] = (await once(socket, 'session')) as [Buffer];
  socket.destroy();
  return session;
}

async function refused(gateway: GatewayUnderTest): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  return Number(/refused_total\{reason="handshake_limit"\} (\d+)\n/.exec(text)?.[1]);
}

const versions = ['TLSv1.2', 'TLSv1.3'] as const;

// 150 handshakes a second on P-521 filled a core, and any number of cheaper ones did: nothing limited them, and no key is needed.
t.test('TLS handshake flood: full handshakes are limited per source, resumptions are not', async (t) => {
  const upstream = await startUpstream(t);
  for (const maxVersion of versions) {
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { limits: slow } });
    const stranger = await startTestGateway(t);
    const session = await sessionOf(gateway, { maxVersion });
    const foreign = await sessionOf(stranger, { maxVersion });
    for (let count = 0; count < 50; count += 1) {
      const resumed = await shake(gateway, { session, maxVersion });
      t.equal(resumed?.isSessionReused(), true, 'what is resumed does not count');
      if (resumed !== null) await exchangeBytes(resumed, requestBytes({}));
    }
    const taken = await exhaust(gateway, { maxVersion });
    t.ok(taken >= 28 && taken <= 31, `${maxVersion}: ${taken} of 40: one had its session, ten are kept for sessions`);
    t.equal(await refused(gateway), 1);
    const late = await shake(gateway, { session, maxVersion });
    t.equal(late?.isSessionReused(), true, `${maxVersion}: a session is resumed all the while`);
    const bytes = requestBytes({ headers: [['x-api-key', liveKey]] });
    if (late !== null) t.equal(parseAnswer(await exchangeBytes(late, bytes)).status, 200);

    const lies = await exhaust(gateway, { session: foreign, maxVersion });
    t.ok(lies >= 9 && lies <= 13, `${maxVersion}: ${lies} that only claimed to have a session were taken`);
    t.equal(await shake(gateway, { session: foreign, maxVersion }), null);
    t.ok(gateway.lines.length <= 52, 'none is a line in the log');
  }
});

t.test('failed TLS handshakes count too', async (t) => {
  const gateway = await startTestGateway(t, { config: { limits: slow } });
  for (let count = 0; count < 30; count += 1) await shake(gateway, { ecdhCurve: 'P-521' });
  t.ok((await exhaust(gateway)) <= 1);
});

t.test('handshakes of trusted proxies and plain connections do not count', async (t) => {
  const upstream = await startUpstream(t);
  const limits = { handshakesPerSecond: 1, handshakeBurst: 1 };
  const behind = await startTestGateway(t, { config: { limits, trustedProxies: ['127.0.0.1'] } });
  for (let count = 0; count < 10; count += 1) t.not(await shake(behind), null);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { limits } });
  await exhaust(gateway);
  for (let count = 0; count < 5; count += 1) {
    const received = await exchangeBytes(net.connect(gateway.http, '127.0.0.1'), requestBytes({}));
    t.equal(parseAnswer(received).status, 401);
  }
});

t.test('with a PROXY header each client address has its own handshake limit', async (t) => {
  const limits = { handshakesPerSecond: 1, handshakeBurst: 1 };
  const gateway = await startTestGateway(t, {
    config: { limits, trustedProxies: ['127.0.0.1'], proxyProtocol: true },
  });
  const from = async (source: string, cut: boolean): Promise<boolean> => {
    const socket = net.connect(gateway.https, '127.0.0.1');
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    socket.write(`PROXY ${source.includes(':') ? 'TCP6' : 'TCP4'} ${source} ${source} 1 2\r\n`);
    if (cut) await new Promise((resolve) => setTimeout(resolve, 20)); // so that TLS comes in a packet of its own
    const isTaken = (await shake(gateway, { socket })) !== null;
    socket.destroy();
    return isTaken;
  };
  for (const cut of [true, false]) {
    const end = cut ? 1 : 2;
    t.equal(await from(`203.0.113.${end}`, cut), true);
    t.equal(await from(`203.0.113.${end}`, cut), false, 'its second');
    t.equal(await from(`198.51.100.${end}`, cut), true, 'another one');
    t.equal(await from(`2001:db8:0:${end}::1`, cut), true);
    t.equal(await from(`2001:db8:0:${end}::2`, cut), false, 'the same /64');
    t.equal(await from(`2001:db8:1:${end}::2`, cut), true);
  }
});

t.test('handshake tokens refill over time, and ever new sources evict the oldest', (t) => {
  let now = 0;
  const rate = new HandshakeRate({ handshakesPerSecond: 10, handshakeBurst: 4 }, compileIpRanges([]), () => now);
  const socket = new net.Socket();
  t.teardown(() => socket.destroy());
  const isTaken = (address: string): boolean => {
    let taken = false;
    rate.admit(socket, parseIpAddress(address), 1, (isAdmitted) => (taken = isAdmitted));
    return taken;
  };
  const take = (): boolean => isTaken('203.0.113.1');
  t.same([take(), take(), take(), take()], [true, true, true, false]);
  now += 100;
  t.same([take(), take()], [true, false]);
  rate.giveBack(parseIpAddress('203.0.113.1'));
  t.same([take(), take()], [true, false]);
  for (let count = 0; count < 20_000; count += 1) isTaken(`10.1.${count >> 8}.${count & 255}`);
  t.equal(take(), true, 'it was forgotten');
  t.end();
});

/** The first bytes that a client of TLS sends. */
async function helloOf(options: ConnectionOptions): Promise<Buffer> {
  const server = net.createServer();
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const client = tls.connect({ ...local, ...options, port: (server.address() as net.AddressInfo).port });
  client.on('error', () => undefined);
  const [socket] = (await once(server, 'connection')) as [Socket];
  const [hello] = (await once(socket, 'data')) as [Buffer];
  client.destroy();
  socket.destroy();
  server.close();
  return hello;
}

t.test('any ClientHello, also a malformed one, is parsed only up to its session offer', async (t) => {
  const gateway = await startTestGateway(t);
  for (const maxVersion of versions) {
    const session = await sessionOf(gateway, { maxVersion });
    const [fresh, resuming] = [await helloOf({ maxVersion }), await helloOf({ maxVersion, session })];
    t.equal(offersSession(fresh), false, maxVersion);
    t.equal(offersSession(resuming), true, maxVersion);
    for (let length = 0; length < resuming.length; length += 1)
      if (offersSession(resuming.subarray(0, length)) !== null) t.fail(`${length} bytes are enough`);
    fc.assert(
      fc.property(fc.nat(resuming.length - 1), fc.integer({ min: 0, max: 255 }), (at, value) => {
        const broken = Buffer.from(resuming);
        broken[at] = value;
        offersSession(broken); // throws nothing
      }),
    );
  }
  t.equal(offersSession(Buffer.from('GET / HTTP/1.1\r\n')), false);
  t.equal(offersSession(Buffer.from([22, 3, 1, 255, 255])), false, 'longer than a record may be');
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      offersSession(Buffer.from([22, 3, 1, 0, bytes.length % 256, ...bytes]));
    }),
  );
});

// Whoever sent one ClientHello with a share of ffdhe8192 again and again, which costs nothing, took the event loop for many
// times as long as a usual handshake does, without a key and before a request.
const finiteField = ['ffdhe2048', 'ffdhe3072', 'ffdhe4096', 'ffdhe6144', 'ffdhe8192'];
// Then of P-521, which takes six times as long, or P-384: 150 a second filled a core.
const costly = [...finiteField, 'P-384', 'P-521', 'X448'];
const cheap = ['X25519', 'P-256'];

async function isTaken(port: number, group: string, servername: string): Promise<boolean> {
  const socket = tls.connect({ port, host: '127.0.0.1', servername, rejectUnauthorized: false, ecdhCurve: group });
  const made = await once(socket, 'secureConnect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  return made;
}

t.test('only cheap key exchange groups are accepted, with and without SNI', async (t) => {
  const gateway = await startTestGateway(t);
  for (const name of ['localhost', 'nobody.example']) {
    for (const group of costly) t.equal(await isTaken(gateway.https, group, name), false, `${group}, ${name}`);
    for (const group of cheap) t.equal(await isTaken(gateway.https, group, name), true, `${group}, ${name}`);
    for (const groups of ['ffdhe8192:X25519', 'P-521:P-384:P-256'])
      t.equal(await isTaken(gateway.https, groups, name), true, `a client that offers a costly one first, ${name}`);
  }
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(metrics, /refused_total\{reason="tls_cipher"\} 16\n/);
});

const key = ['x-api-key', liveKey] as const;
const replacements = 50;

// A certificate is replaced while requests come in; whoever is in the middle of a handshake or of a request then must
// not notice it, and neither must whoever has a connection from long before.
t.test('a certificate is replaced fifty times under load and no request fails', async (t) => {
  const upstream = await startUpstream(t);
  const authority = await makeCertificate({ names: ['authority.example'] });
  const [first, second] = await Promise.all([makeCertificate({ ca: authority }), makeCertificate({ ca: authority })]);
  // Both are replaced at once, as Kubernetes does: the gateway looks by itself as well, and would refuse half of a pair.
  const folder = t.testdir({
    first: { 'tls.crt': first.cert, 'tls.key': first.key },
    second: { 'tls.crt': second.cert, 'tls.key': second.key },
    current: t.fixture('symlink', 'first'),
  });
  const file = (name: string): string => path.join(folder, 'current', name);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { listen: { https: { certFile: file('tls.crt'), keyFile: file('tls.key') } } },
  });
  const ca = authority.cert;
  const trusting = { ...gateway, ca };
  const load = { isOver: false, handshakes: 0, kept: 0, failed: [] as unknown[] };

  const agent = new https.Agent({ keepAlive: true, maxSockets: 1, ca, servername: 'localhost' });
  t.teardown(() => {
    agent.destroy();
  });
  const onKeptConnection = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const headers = { 'x-api-key': liveKey };
      const target = { agent, host: '127.0.0.1', port: gateway.https, path: '/v1/transactions', headers };
      const request = https.get(target, (response) => {
        if (response.statusCode !== 200) reject(new Error(`status ${String(response.statusCode)}`));
        response.resume().on('end', resolve);
      });
      request.on('error', reject);
    });
  const callers = [
    ...Array.from({ length: 3 }, () => async () => {
      const answer = await ask(trusting, { headers: [key] }); // a handshake for each
      if (answer.status !== 200) throw new Error(`status ${answer.status}`);
      load.handshakes += 1;
    }),
    async () => {
      await onKeptConnection();
      load.kept += 1;
    },
  ].map(async (call) => {
    while (!load.isOver) await call().catch((error: unknown) => load.failed.push(error));
  });
  for (let count = 0; count < replacements; count += 1) {
    await symlink(count % 2 === 0 ? 'second' : 'first', path.join(folder, 'next'));
    await rename(path.join(folder, 'next'), path.join(folder, 'current'));
    await gateway.reloadTls();
    const before = load.handshakes;
    while (load.handshakes <= before && load.failed.length === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  load.isOver = true;
  await Promise.all(callers);
  t.same(load.failed, []);
  t.equal(gateway.certificateChanges.length, replacements);
  t.ok(gateway.certificateChanges.every(({ problem }) => problem === null));
  t.ok(load.handshakes >= replacements && load.kept > 0);
  t.comment(`${load.handshakes} requests with a handshake each, ${load.kept} on one connection`);
});

t.test('a certificate swap while the files are read never mixes a certificate and a key of two pairs', async (t) => {
  const [first, second] = await Promise.all([makeCertificate(), makeCertificate()]);
  const folder = t.testdir({
    first: { 'tls.crt': first.cert, 'tls.key': first.key },
    second: { 'tls.crt': second.cert, 'tls.key': second.key },
    current: t.fixture('symlink', 'first'),
  });
  const file = (name: string): string => path.join(folder, 'current', name);
  const gateway = await startTestGateway(t, {
    config: { listen: { https: { certFile: file('tls.crt'), keyFile: file('tls.key') } } },
  });
  for (let count = 0; count < 100; count += 1) {
    await symlink(count % 2 === 0 ? 'second' : 'first', path.join(folder, 'next'));
    const looked = gateway.reloadTls();
    for (let turns = count % 10; turns > 0; turns -= 1) await new Promise((resolve) => setImmediate(resolve));
    await rename(path.join(folder, 'next'), path.join(folder, 'current'));
    await looked;
  }
  t.same(
    gateway.certificateChanges.filter(({ problem }) => problem !== null),
    [],
  );
});
