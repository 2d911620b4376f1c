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
  parseResponse,
  requestBytes,
  startTestGateway,
  startUpstream,
} from '../edge/harness.js';

const local = { host: '127.0.0.1', servername: 'localhost', rejectUnauthorized: false };
/** The lowest refill rate: a token per second. */
const lowRate = { handshakesPerSecond: 1, handshakeBurst: 40 };

/**
 * Returns a function that counts the tokens refilled since `countRefills` was called: one in a quick test, more on a
 * slow machine.
 */
function countRefills(): () => number {
  const since = performance.now();
  return () => Math.ceil((performance.now() - since) / 1000);
}

/** Makes a TLS handshake. Returns null if the gateway closes the connection instead. */
async function handshake(gateway: GatewayUnderTest, options: ConnectionOptions = {}): Promise<TLSSocket | null> {
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

/** Makes handshakes until the gateway refuses one. Returns how many it accepted. */
async function exhaust(gateway: GatewayUnderTest, options: ConnectionOptions = {}): Promise<number> {
  let accepted = 0;
  for (;;) {
    const socket = await handshake(gateway, options);
    if (socket === null) return accepted;
    accepted += 1;
    socket.destroy();
  }
}

/** A TLS session with a gateway, from a request on a separate connection. */
async function sessionOf(gateway: GatewayUnderTest, options: ConnectionOptions = {}): Promise<Buffer> {
  const socket = tls.connect({ ...local, port: gateway.https, ...options });
  socket.on('error', () => undefined).resume();
  socket.write(requestBytes({}));
  const [session] = (await once(socket, 'session')) as [Buffer];
  socket.destroy();
  return session;
}

async function countRefused(gateway: GatewayUnderTest): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  return Number(/refused_total\{reason="handshake_limit"\} (\d+)\n/.exec(text)?.[1]);
}

const versions = ['TLSv1.2', 'TLSv1.3'] as const;

// Regression: 150 handshakes a second on P-521 used a whole core, and so did a larger number of cheaper ones. They need
// no API key, and nothing limited them.
t.test('TLS handshake flood: full handshakes are limited per source, resumptions are not', async (t) => {
  const upstream = await startUpstream(t);
  for (const maxVersion of versions) {
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { limits: lowRate } });
    const otherGateway = await startTestGateway(t);
    const session = await sessionOf(gateway, { maxVersion });
    const foreign = await sessionOf(otherGateway, { maxVersion });
    for (let count = 0; count < 50; count += 1) {
      const resumed = await handshake(gateway, { session, maxVersion });
      t.equal(resumed?.isSessionReused(), true, 'a resumption does not count');
      if (resumed !== null) await exchangeBytes(resumed, requestBytes({}));
    }
    const refills = countRefills();
    const accepted = await exhaust(gateway, { maxVersion });
    const explanation = 'one was used to get the session, ten are reserved for resumptions';
    t.ok(accepted >= 28 && accepted <= 30 + refills(), `${maxVersion}: ${accepted} of 40: ${explanation}`);
    t.equal(await countRefused(gateway), 1);
    const late = await handshake(gateway, { session, maxVersion });
    t.equal(late?.isSessionReused(), true, `${maxVersion}: a session can still be resumed`);
    const bytes = requestBytes({ headers: [['x-api-key', liveKey]] });
    if (late !== null) t.equal(parseResponse(await exchangeBytes(late, bytes)).status, 200);

    const lastRefills = countRefills();
    const pretended = await exhaust(gateway, { session: foreign, maxVersion });
    t.ok(
      pretended >= 9 && pretended <= 10 + refills(),
      `${maxVersion}: ${pretended} with a session of another gateway were accepted`,
    );
    t.ok((await exhaust(gateway, { session: foreign, maxVersion })) <= lastRefills(), 'and no more after that');
    t.ok(gateway.lines.length <= 52, 'a refused handshake has no log line');
  }
});

t.test('failed TLS handshakes count too', async (t) => {
  const gateway = await startTestGateway(t, { config: { limits: lowRate } });
  const refills = countRefills();
  for (let count = 0; count < 30; count += 1) await handshake(gateway, { ecdhCurve: 'P-521' });
  t.ok((await exhaust(gateway)) <= refills());
});

t.test('handshakes of trusted proxies and plain connections do not count', async (t) => {
  const upstream = await startUpstream(t);
  const limits = { handshakesPerSecond: 1, handshakeBurst: 1 };
  const behindProxy = await startTestGateway(t, { config: { limits, trustedProxies: ['127.0.0.1'] } });
  for (let count = 0; count < 10; count += 1) t.not(await handshake(behindProxy), null);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { limits } });
  await exhaust(gateway);
  for (let count = 0; count < 5; count += 1) {
    const received = await exchangeBytes(net.connect(gateway.http, '127.0.0.1'), requestBytes({}));
    t.equal(parseResponse(received).status, 401);
  }
});

t.test('with a PROXY header each client address has its own handshake limit', async (t) => {
  const limits = { handshakesPerSecond: 1, handshakeBurst: 1 };
  const gateway = await startTestGateway(t, {
    config: { limits, trustedProxies: ['127.0.0.1'], proxyProtocol: true },
  });
  const isAccepted = async (source: string, splits: boolean): Promise<boolean> => {
    const socket = net.connect(gateway.https, '127.0.0.1');
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    socket.write(`PROXY ${source.includes(':') ? 'TCP6' : 'TCP4'} ${source} ${source} 1 2\r\n`);
    if (splits) await new Promise((resolve) => setTimeout(resolve, 20)); // so that TLS begins in a separate packet
    const isOpen = (await handshake(gateway, { socket })) !== null;
    socket.destroy();
    return isOpen;
  };
  /** Returns three sources, of which the first two share a limit. With a new `end`, no source has been used before. */
  type Sources = (end: string) => readonly [first: string, same: string, other: string];
  const families: readonly Sources[] = [
    (end) => [`203.0.113.${end}`, `203.0.113.${end}`, `198.51.100.${end}`],
    (end) => [`2001:db8:0:${end}::1`, `2001:db8:0:${end}::2`, `2001:db8:1:${end}::2`],
  ];
  let unused = 0;
  for (const splits of [true, false]) {
    for (const sourcesOf of families) {
      let results: boolean[] = [];
      // On a slow machine a token can return before the second handshake. Then other sources are used.
      for (let refills = 2; refills > 1;) {
        const [first, same, other] = sourcesOf(String((unused += 1)));
        const refilled = countRefills();
        results = [await isAccepted(first, splits), await isAccepted(same, splits)];
        refills = refilled();
        results.push(await isAccepted(other, splits));
      }
      t.same(results, [true, false, true], 'the first handshake, the second of its source, and another source');
    }
  }
});

t.test('handshake tokens refill over time, and ever new sources evict the oldest', (t) => {
  let now = 0;
  const rate = new HandshakeRate({ handshakesPerSecond: 10, handshakeBurst: 4 }, compileIpRanges([]), () => now);
  const socket = new net.Socket();
  t.teardown(() => socket.destroy());
  const isAdmitted = (address: string): boolean => {
    let result = false;
    rate.admit(socket, parseIpAddress(address), 1, (admitted) => (result = admitted));
    return result;
  };
  const take = (): boolean => isAdmitted('203.0.113.1');
  t.same([take(), take(), take(), take()], [true, true, true, false]);
  now += 100;
  t.same([take(), take()], [true, false]);
  rate.giveBack(parseIpAddress('203.0.113.1'));
  t.same([take(), take()], [true, false]);
  for (let count = 0; count < 20_000; count += 1) isAdmitted(`10.1.${count >> 8}.${count & 255}`);
  t.equal(take(), true, 'the oldest source was evicted');
  t.end();
});

/** The first bytes that a TLS client sends. */
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
      if (offersSession(resuming.subarray(0, length)) !== null) t.fail(`${length} bytes are sufficient`);
    fc.assert(
      fc.property(fc.nat(resuming.length - 1), fc.integer({ min: 0, max: 255 }), (at, value) => {
        const broken = Buffer.from(resuming);
        broken[at] = value;
        offersSession(broken); // must not throw
      }),
    );
  }
  t.equal(offersSession(Buffer.from('GET / HTTP/1.1\r\n')), false);
  t.equal(offersSession(Buffer.from([22, 3, 1, 255, 255])), false, 'longer than the maximum of a TLS record');
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      offersSession(Buffer.from([22, 3, 1, 0, bytes.length % 256, ...bytes]));
    }),
  );
});

// An attacker can repeat one ClientHello with an ffdhe8192 key share at no cost. Regression: each one blocked the event
// loop for many times as long as a usual handshake, before any request and without a key.
const finiteField = ['ffdhe2048', 'ffdhe3072', 'ffdhe4096', 'ffdhe6144', 'ffdhe8192'];
// A later attack used P-521 or P-384. A handshake on P-521 takes six times as long as a usual one, and 150 of them a
// second used a whole core.
const costly = [...finiteField, 'P-384', 'P-521', 'X448'];
const cheap = ['X25519', 'P-256'];

async function completesHandshake(port: number, group: string, servername: string): Promise<boolean> {
  const socket = tls.connect({ port, host: '127.0.0.1', servername, rejectUnauthorized: false, ecdhCurve: group });
  const isComplete = await once(socket, 'secureConnect').then(
    () => true,
    () => false,
  );
  socket.destroy();
  return isComplete;
}

t.test('only cheap key exchange groups are accepted, with and without SNI', async (t) => {
  const gateway = await startTestGateway(t);
  for (const name of ['localhost', 'nobody.example']) {
    for (const group of costly)
      t.equal(await completesHandshake(gateway.https, group, name), false, `${group}, ${name}`);
    for (const group of cheap) t.equal(await completesHandshake(gateway.https, group, name), true, `${group}, ${name}`);
    for (const groups of ['ffdhe8192:X25519', 'P-521:P-384:P-256'])
      t.equal(
        await completesHandshake(gateway.https, groups, name),
        true,
        `a client that prefers a costly group, ${name}`,
      );
  }
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(metrics, /refused_total\{reason="tls_cipher"\} 16\n/);
});

const key = ['x-api-key', liveKey] as const;
const replacements = 50;

// A certificate is replaced while requests arrive. This must not affect a handshake or a request in progress, nor an older
// connection.
t.test('a certificate is replaced fifty times under load and no request fails', async (t) => {
  const upstream = await startUpstream(t);
  const authority = await makeCertificate({ names: ['authority.example'] });
  const [first, second] = await Promise.all([makeCertificate({ ca: authority }), makeCertificate({ ca: authority })]);
  // Like Kubernetes, the test replaces both files at once. The gateway also checks the files by itself, and would reject
  // half of a pair.
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
  const load = { isOver: false, handshakes: 0, persistent: 0, failed: [] as unknown[] };

  const agent = new https.Agent({ keepAlive: true, maxSockets: 1, ca, servername: 'localhost' });
  t.teardown(() => {
    agent.destroy();
  });
  const requestOnPersistentConnection = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const headers = { 'x-api-key': liveKey };
      const target = { agent, host: '127.0.0.1', port: gateway.https, path: '/v1/transactions', headers };
      const request = https.get(target, (response) => {
        if (response.statusCode !== 200) reject(new Error(`status ${String(response.statusCode)}`));
        response.resume().on('end', resolve);
      });
      request.on('error', reject);
    });
  const clients = [
    ...Array.from({ length: 3 }, () => async () => {
      const response = await ask(trusting, { headers: [key] }); // each with a new handshake
      if (response.status !== 200) throw new Error(`status ${response.status}`);
      load.handshakes += 1;
    }),
    async () => {
      await requestOnPersistentConnection();
      load.persistent += 1;
    },
  ].map(async (call) => {
    while (!load.isOver) await call().catch((error: unknown) => load.failed.push(error));
  });
  for (let count = 0; count < replacements; count += 1) {
    await symlink(count % 2 === 0 ? 'second' : 'first', path.join(folder, 'next'));
    await rename(path.join(folder, 'next'), path.join(folder, 'current'));
    await gateway.reloadTls();
    const before = load.handshakes;
    while (load.handshakes <= before && load.failed.length === 0)
      await new Promise((resolve) => setTimeout(resolve, 1));
  }
  load.isOver = true;
  await Promise.all(clients);
  t.same(load.failed, []);
  t.equal(gateway.certificateChanges.length, replacements);
  t.ok(gateway.certificateChanges.every(({ problem }) => problem === null));
  t.ok(load.handshakes >= replacements && load.persistent > 0);
  t.comment(`${load.handshakes} requests with a handshake each, ${load.persistent} on one connection`);
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
    const reloaded = gateway.reloadTls();
    for (let turns = count % 10; turns > 0; turns -= 1) await new Promise((resolve) => setImmediate(resolve));
    await rename(path.join(folder, 'next'), path.join(folder, 'current'));
    await reloaded;
  }
  t.same(
    gateway.certificateChanges.filter(({ problem }) => problem !== null),
    [],
  );
});
