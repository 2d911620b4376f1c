import { randomBytes, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdir, rename, symlink, writeFile } from 'node:fs/promises';
import https from 'node:https';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import tls from 'node:tls';
import type { ConnectionOptions, TLSSocket } from 'node:tls';
import t from 'tap';
import { parse } from 'yaml';
import type { SelfSigned } from '../../src/cli/dev/self-signed.js';
import { makeCertificate } from './certificates.js';
import { ask, connect, exchangeBytes, liveKey, parseResponse, requestBytes } from './harness.js';
import { startTestGateway, startUpstream } from './harness.js';
import type { GatewayUnderTest } from './harness.js';
import { emptyList } from '../empty-list.js';

const key = ['x-api-key', liveKey] as const;
const day = 86_400_000;
const [ecdsa, rsa, otherEcdsa] = await Promise.all([
  makeCertificate({ names: ['localhost', 'api.shop.example'] }),
  makeCertificate({ keyType: 'rsa', names: ['localhost', 'api.shop.example'] }),
  makeCertificate({ names: ['*.pay.example', 'other.example'] }),
]);

/** Writes a certificate and its key into a folder, and returns the paths of the two files. */
async function files(folder: string, name: string, { cert, key }: SelfSigned) {
  const [certFile, keyFile] = [path.join(folder, `${name}.crt`), path.join(folder, `${name}.key`)];
  await writeFile(certFile, cert);
  await writeFile(keyFile, key);
  return { certFile, keyFile };
}

/** Performs a TLS handshake. Returns the client's socket; null if the server refuses the handshake. */
async function handshake(port: number, options: ConnectionOptions = {}): Promise<TLSSocket | null> {
  const socket = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false, ...options });
  const made = await new Promise<boolean>((resolve) => {
    socket.once('secureConnect', () => {
      resolve(true);
    });
    socket.once('error', () => {
      resolve(false);
    });
  });
  if (!made) return null;
  socket.on('error', () => undefined);
  return socket;
}

/** Returns the subject of the server's certificate and the type of its key, such as `CN=localhost ec`. */
async function shownBy(port: number, options: ConnectionOptions = {}): Promise<string> {
  const socket = await handshake(port, options);
  const certificate = socket?.getPeerX509Certificate();
  socket?.destroy();
  return `${certificate?.subject ?? 'nothing'} ${certificate?.publicKey.asymmetricKeyType ?? ''}`;
}

async function readinessOf(gateway: GatewayUnderTest): Promise<unknown> {
  return (await fetch(`http://127.0.0.1:${gateway.management}/readyz`)).json();
}

async function metricsOf(gateway: GatewayUnderTest): Promise<string> {
  return (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
}

t.test('TLS is 1.2 and 1.3 with forward secrecy and authenticated encryption, or 1.3 only if configured', async (t) => {
  const folder = t.testdir({});
  const both = { certificates: [await files(folder, 'rsa', rsa)], ...(await files(folder, 'ecdsa', ecdsa)) };
  const gateway = await startTestGateway(t, { config: { listen: { https: both } } });
  const strict = await startTestGateway(t, { config: { listen: { https: { minVersion: 'TLSv1.3' } } } });
  const old = { minVersion: 'TLSv1', ciphers: 'ALL:@SECLEVEL=0' } as const;
  const rows: readonly [string, ConnectionOptions, string | null][] = [
    ['TLS 1.3', {}, 'TLSv1.3'],
    ['TLS 1.2', { maxVersion: 'TLSv1.2' }, 'TLSv1.2'],
    ['TLS 1.1', { ...old, maxVersion: 'TLSv1.1' }, null],
    ['TLS 1.0', { ...old, maxVersion: 'TLSv1' }, null],
    ['no forward secrecy', { maxVersion: 'TLSv1.2', ciphers: 'AES128-GCM-SHA256' }, null],
    ['CBC', { maxVersion: 'TLSv1.2', ciphers: 'ECDHE-RSA-AES128-SHA256:ECDHE-ECDSA-AES128-SHA' }, null],
    ['finite-field groups', { maxVersion: 'TLSv1.2', ciphers: 'DHE-RSA-AES128-GCM-SHA256' }, null],
    ['the ALPN of HTTP/1.0', { ALPNProtocols: ['http/1.0'] }, 'TLSv1.3'],
    ['an ALPN that nobody knows', { ALPNProtocols: ['spdy/3'] }, null],
  ];
  for (const [name, options, version] of rows) {
    const socket = await handshake(gateway.https, options);
    t.equal(socket?.getProtocol() ?? null, version, name);
    socket?.destroy();
  }
  t.equal(await handshake(strict.https, { maxVersion: 'TLSv1.2' }), null, 'TLS 1.2 against a minimum of 1.3');
  t.equal((await ask(strict, {})).status, 401);
  const metrics = await metricsOf(gateway);
  t.match(metrics, /refused_total\{reason="tls_version"\} 2\n/);
  t.match(metrics, /refused_total\{reason="tls_cipher"\} 3\n/);
});

t.test('a client whose ALPN offers only HTTP/1.0 is served with it', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const ALPNProtocols = ['http/1.0'];
  const socket = tls.connect({
    port: gateway.https,
    host: '127.0.0.1',
    ca: gateway.ca,
    servername: 'localhost',
    ALPNProtocols,
  });
  const bytes = `POST /v1/payouts HTTP/1.0\r\nx-api-key: ${liveKey}\r\nContent-Length: 2\r\n\r\n{}`;
  const response = parseResponse(await exchangeBytes(socket, bytes));
  t.equal(response.status, 200);
  t.match(response.body, '"success":true');
});

t.test('ALPN offers only HTTP/1.1; a client that offers only HTTP/2 gets no connection', async (t) => {
  const gateway = await startTestGateway(t, {});
  const connectWith = (ALPNProtocols: string[]): tls.TLSSocket =>
    tls.connect({ port: gateway.https, host: '127.0.0.1', ca: gateway.ca, servername: 'localhost', ALPNProtocols });
  const both = connectWith(['h2', 'http/1.1']);
  await once(both, 'secureConnect');
  t.equal(both.alpnProtocol, 'http/1.1');
  both.destroy();
  const [error] = (await once(connectWith(['h2']), 'error')) as [NodeJS.ErrnoException];
  t.match(error.code, /NO_APPLICATION_PROTOCOL/);
  t.match(await metricsOf(gateway), /refused_total\{reason="tls_alpn"\} 1\n/);
});

t.test('each client gets the certificate for its SNI host name, with a key type that it can verify', async (t) => {
  const folder = t.testdir({});
  const certificates = [await files(folder, 'rsa', rsa), await files(folder, 'other', otherEcdsa)];
  const gateway = await startTestGateway(t, {
    config: { listen: { https: { ...(await files(folder, 'ecdsa', ecdsa)), certificates } } },
  });
  const rsaOnly = { maxVersion: 'TLSv1.2', ciphers: 'ECDHE-RSA-AES128-GCM-SHA256' } as const;
  // If two certificates are suitable, OpenSSL chooses. Different versions of OpenSSL choose differently.
  const either = /^CN=localhost (?:ec|rsa)$/;
  const rows: readonly [string, ConnectionOptions, string | RegExp][] = [
    ['no name', {}, 'CN=localhost ec'],
    ['no name, RSA', rsaOnly, 'CN=localhost rsa'],
    ['a name', { servername: 'api.shop.example' }, either],
    ['a name in upper case', { servername: 'API.SHOP.EXAMPLE' }, either],
    ['a name, RSA', { servername: 'api.shop.example', ...rsaOnly }, 'CN=localhost rsa'],
    ['another name', { servername: 'other.example' }, 'CN=*.pay.example ec'],
    ['a wildcard', { servername: 'a.pay.example' }, 'CN=*.pay.example ec'],
    ['two levels below a wildcard', { servername: 'a.b.pay.example' }, 'CN=localhost ec'],
    ['the wildcard’s own domain', { servername: 'pay.example' }, 'CN=localhost ec'],
    ['an unknown name', { servername: 'nobody.example' }, 'CN=localhost ec'],
  ];
  for (const [name, options, expected] of rows) t.match(await shownBy(gateway.https, options), expected, name);
  const metrics = await metricsOf(gateway);
  const momentsOf = (name: string): number[] =>
    [...metrics.matchAll(new RegExp(`^gateway_tls_certificate_${name}_seconds\\{file="[^"]+"\\} (\\d+)$`, 'gm'))].map(
      ([, moment]) => Number(moment),
    );
  const [begins, ends] = [momentsOf('not_before'), momentsOf('not_after')];
  t.equal(ends.length, 3);
  t.ok(
    ends.every((end, index) => end > Date.now() / 1000 && (begins[index] ?? Infinity) <= Date.now() / 1000),
    `${begins.join()} ${ends.join()}`,
  );
});

t.test('a six-day certificate that is renewed in the last third of its life raises no alert', (t) => {
  const { groups } = parse(readFileSync('helm/files/alerts.yaml', 'utf8')) as {
    groups: { rules: { alert: string; expr: string }[] }[];
  };
  const { expr = '' } =
    groups.flatMap(({ rules }) => rules).find(({ alert }) => alert === 'GatewayCertificateEnds') ?? {};
  const [end, begin] = ['after', 'before'].map((which) => `gateway_tls_certificate_not_${which}_seconds{}`);
  const [ofShortLives = '', ofAll, ...others] = expr.split(' and ');
  t.equal(ofAll, `(${end} - time()) / 86400 < 7`);
  const share = Number(ofShortLives.replace(`${end} - time() < (${end} - ${begin}) / `, ''));
  t.ok(share > 3, expr);
  t.ok(7 * share < 47, 'a 47-day certificate still alerts a week before its end');
  t.same(others, []);
  t.end();
});

t.test('unusable files stop the start with one sentence', async (t) => {
  const folder = t.testdir({ short: randomBytes(47), pem: 'garbage' });
  const one = await files(folder, 'one', ecdsa);
  const other = await files(folder, 'other', otherEcdsa);
  const ofRsa = await files(folder, 'rsa', rsa);
  const at = (name: string) => path.join(folder, name);
  const rows: readonly [object, RegExp][] = [
    [{ certFile: one.certFile, keyFile: other.keyFile }, /do not belong together/],
    [{ certFile: ofRsa.certFile }, /do not belong together/],
    [{ keyFile: ofRsa.keyFile }, /do not belong together/],
    [{ certificates: [{ certFile: other.certFile, keyFile: one.keyFile }] }, /do not belong together/],
    [{ certificates: [{ ...other, certFile: at('none') }] }, /The certificate .*none cannot be read/],
    [{ certFile: at('pem') }, /is not a PEM certificate/],
    [{ ticketKeysFile: at('short') }, /ticket keys .* has 47 bytes; expected 48/],
    [{ clientCaFile: at('pem'), clientCertificates: 'require' }, /The CA certificate .* is not a PEM certificate/],
  ];
  for (const [options, sentence] of rows) {
    const start = startTestGateway(t, { config: { listen: { https: { ...one, ...options } } } });
    await t.rejects(start, { name: 'OperatorError', message: sentence }, String(sentence));
  }
});

t.test('new files are used from the next handshake on; unusable ones change nothing', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: {
      listen: { https: { reloadSeconds: 86_400 } }, // a poll could find a new certificate with the former key
      limits: { headersTimeoutSeconds: 600, requestTimeoutSeconds: 600 }, // for `kept`, whose request comes last
    },
  });
  const { certFile, keyFile } = gateway;
  const kept = connect(gateway.https, gateway.ca);
  await once(kept, 'secureConnect');
  const replace = async (cert: string, privateKey: string): Promise<void> => {
    await writeFile(certFile, cert);
    await writeFile(keyFile, privateKey);
    await gateway.reloadTls();
  };
  const [fresh, expired, future] = await Promise.all([
    makeCertificate({ names: ['fresh.example'] }),
    makeCertificate({ names: ['expired.example'], notAfter: Date.now() - 1000 }),
    makeCertificate({ names: ['future.example'], notBefore: Date.now() + day }),
  ]);
  await gateway.reloadTls();
  t.same(gateway.certificateChanges, [], 'unchanged files are not a change');
  await replace(fresh.cert, fresh.key);
  for (const servername of [undefined, 'fresh.example', 'localhost', 'nobody.example']) {
    t.equal(await shownBy(gateway.https, { servername }), 'CN=fresh.example ec', `for SNI ${servername ?? 'no host'}`);
  }
  t.same(gateway.certificateChanges.splice(0), [{ result: 'replaced', problem: null }]);

  const bad: readonly [string, string, RegExp][] = [
    [ecdsa.cert, fresh.key, /do not belong together/],
    [ecdsa.cert.slice(0, 300), ecdsa.key, /is not a PEM certificate/],
    [fresh.cert, rsa.key, /do not belong together/],
    [expired.cert, expired.key, /has expired/],
    [rsa.cert, fresh.key, /do not belong together/],
    ['', '', /is not a PEM certificate/],
    [future.cert, future.key, /is not valid yet/],
  ];
  for (const [cert, privateKey, problem] of bad) {
    await replace(cert, privateKey);
    await gateway.reloadTls();
    t.equal(await shownBy(gateway.https), 'CN=fresh.example ec', String(problem));
    t.match(gateway.certificateChanges.splice(0), [{ result: 'refused', problem }]);
    const warning = `the previous certificates stay in use because the new ones cannot be used: `;
    t.match(await readinessOf(gateway), {
      problems: emptyList,
      warnings: [new RegExp(`^${warning}.*${problem.source}`)],
    });
    t.match(await metricsOf(gateway), /^gateway_tls_files_usable 0$/m);
  }
  await replace(fresh.cert, fresh.key);
  await gateway.reloadTls();
  t.same(
    gateway.certificateChanges.splice(0),
    [{ result: 'restored', problem: null }],
    'the recovery is reported, once',
  );
  t.match(await readinessOf(gateway), { warnings: emptyList });
  t.match(await metricsOf(gateway), /^gateway_tls_files_usable 1$/m);
  await replace(ecdsa.cert, ecdsa.key);
  t.equal(await shownBy(gateway.https), 'CN=localhost ec', 'the next usable certificate is used');
  t.match(await metricsOf(gateway), /gateway_tls_reloads_total\{result="refused"\} 7\n/);
  t.match(await metricsOf(gateway), /gateway_tls_reloads_total\{result="replaced"\} 2\n/);
  const response = parseResponse(await exchangeBytes(kept, requestBytes({ headers: [key] })));
  t.equal(response.status, 200, 'a connection opened before the changes is still served');
});

t.test('an expired certificate that is already in use does not prevent the replacement of other files', async (t) => {
  const folder = t.testdir({ keys: randomBytes(48) });
  const [expired, renewed] = await Promise.all([
    makeCertificate({ names: ['old.example'], notAfter: Date.now() - 1000 }),
    makeCertificate({ names: ['renewed.example'] }),
  ]);
  const ticketKeysFile = path.join(folder, 'keys');
  const https = {
    ...(await files(folder, 'one', ecdsa)),
    certificates: [await files(folder, 'old', expired)],
    ticketKeysFile,
    reloadSeconds: 86_400,
  };
  const gateway = await startTestGateway(t, { config: { listen: { https } } });
  await files(folder, 'one', renewed);
  await gateway.reloadTls();
  t.same(gateway.certificateChanges.splice(0), [{ result: 'replaced', problem: null }], 'a new certificate');
  t.equal(await shownBy(gateway.https), 'CN=renewed.example ec');
  t.match(await readinessOf(gateway), { warnings: [/^the certificate .*old\.crt expired on \d{4}-/] });
  await writeFile(ticketKeysFile, randomBytes(48));
  await gateway.reloadTls();
  t.same(gateway.certificateChanges.splice(0), [{ result: 'replaced', problem: null }], 'new ticket keys');
  await files(folder, 'one', expired);
  await gateway.reloadTls();
  t.match(gateway.certificateChanges, [{ result: 'refused', problem: /one\.crt has expired/ }], 'in a second place');
  t.equal(await shownBy(gateway.https), 'CN=renewed.example ec');
});

t.test('a change is detected by polling, also when a symbolic link is swapped as in Kubernetes', async (t) => {
  const folder = t.testdir({});
  const put = async (name: string, pems: SelfSigned): Promise<void> => {
    await mkdir(path.join(folder, name));
    await files(path.join(folder, name), 'tls', pems);
    await symlink(name, path.join(folder, `${name}-link`));
    await rename(path.join(folder, `${name}-link`), path.join(folder, '..data'));
  };
  await put('..2026_1', ecdsa);
  await symlink('..data/tls.crt', path.join(folder, 'tls.crt'));
  await symlink('..data/tls.key', path.join(folder, 'tls.key'));
  const own = { certFile: path.join(folder, 'tls.crt'), keyFile: path.join(folder, 'tls.key'), reloadSeconds: 1 };
  const gateway = await startTestGateway(t, { config: { listen: { https: own } } });
  t.equal(await shownBy(gateway.https), 'CN=localhost ec');
  await put('..2026_2', otherEcdsa);
  while (gateway.certificateChanges.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
  t.same(gateway.certificateChanges, [{ result: 'replaced', problem: null }]);
  t.equal(await shownBy(gateway.https), 'CN=*.pay.example ec');
});

t.test('a certificate that expires soon is reported as a warning, and traffic continues', async (t) => {
  const folder = t.testdir({});
  const soon = await makeCertificate({ notBefore: Date.now() - 80 * day, notAfter: Date.now() + 3 * day });
  const gateway = await startTestGateway(t, { config: { listen: { https: await files(folder, 'soon', soon) } } });
  const ready = await fetch(`http://127.0.0.1:${gateway.management}/readyz`);
  t.equal(ready.status, 200);
  t.match(await ready.json(), { problems: emptyList, warnings: [/^the certificate .*soon\.crt expires on \d{4}-/] });
  const other = await startTestGateway(t);
  t.match(await (await fetch(`http://127.0.0.1:${other.management}/readyz`)).json(), { warnings: emptyList });
});

/** A TLS session as a client stores it. TLS 1.2 sends it during the handshake, TLS 1.3 afterwards. */
async function sessionOf({ https: port }: GatewayUnderTest, options: ConnectionOptions = {}): Promise<Buffer> {
  const socket = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false, ...options });
  const [session] = (await once(socket, 'session')) as [Buffer];
  socket.destroy();
  return session;
}

/** Creates a session with one gateway and returns whether another one resumes it. */
async function resumes(
  from: GatewayUnderTest,
  by: GatewayUnderTest,
  options: ConnectionOptions = {},
): Promise<boolean> {
  const socket = await handshake(by.https, { ...options, session: await sessionOf(from, options) });
  const resumed = socket?.isSessionReused() ?? false;
  socket?.destroy();
  return resumed;
}

t.test('every replica with the same ticket keys resumes a session, until the keys are replaced', async (t) => {
  const folder = t.testdir({ keys: randomBytes(48) });
  const own = { ...(await files(folder, 'one', ecdsa)), ticketKeysFile: path.join(folder, 'keys') };
  const shared = { config: { listen: { https: own } } };
  const [one, other, alone] = await Promise.all([
    startTestGateway(t, shared),
    startTestGateway(t, shared),
    startTestGateway(t),
  ]);
  for (const options of [{}, { maxVersion: 'TLSv1.2', servername: 'api.shop.example' }] as const) {
    t.ok(await resumes(one, one, options), 'by the same gateway');
    t.ok(await resumes(one, other, options), 'by a replica');
    t.ok(await resumes(alone, alone, options), 'with keys of its own');
    t.notOk(await resumes(one, alone, options), 'not by a gateway with other keys');
  }
  await writeFile(path.join(folder, 'keys'), randomBytes(48));
  await other.reloadTls();
  t.notOk(await resumes(one, other), 'after the keys were replaced');
  t.ok(await resumes(other, other));
});

t.test('client certificates: required, requested or ignored as configured; an invalid one is refused', async (t) => {
  const folder = t.testdir({ keys: randomBytes(48) });
  const authority = await makeCertificate({ names: ['authority.example'] });
  const [client, stranger] = await Promise.all([
    makeCertificate({ names: ['client.example'], ca: authority }),
    makeCertificate({ names: ['stranger.example'] }),
  ]);
  const server = await files(folder, 'server', ecdsa);
  const { certFile: clientCaFile } = await files(folder, 'authority', authority);
  const ticketKeysFile = path.join(folder, 'keys');
  const listening = (clientCertificates: 'none' | 'request' | 'require') => ({
    ...(clientCertificates === 'none' ? {} : { clientCaFile }),
    ...{ ...server, ticketKeysFile, clientCertificates },
  });
  const started = async (mode: 'none' | 'request' | 'require') =>
    startTestGateway(t, { config: { listen: { https: listening(mode) } } });
  const [notRequested, request, require] = [await started('none'), await started('request'), await started('require')];
  const isServed = async ({ https: port }: GatewayUnderTest, options: ConnectionOptions): Promise<boolean> => {
    const socket = await handshake(port, options);
    return (
      socket !== null && (await exchangeBytes(socket, requestBytes({})).catch(() => '')).includes('Key is required')
    );
  };
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    for (const [gateway, absent, good, bad] of [
      [notRequested, true, true, true],
      [request, true, true, false],
      [require, false, true, false],
    ] as const) {
      t.equal(await isServed(gateway, { maxVersion: version }), absent, 'without a certificate');
      t.equal(await isServed(gateway, { maxVersion: version, ...client }), good, 'with a valid certificate');
      t.equal(await isServed(gateway, { maxVersion: version, ...stranger }), bad, 'with a certificate of another CA');
    }
  }
  const { fingerprint256 } = new X509Certificate(client.cert);
  const shown = { subject: 'CN=client.example', hash: { sha256: fingerprint256.replaceAll(':', '') } };
  const logged = ({ lines }: GatewayUnderTest) => lines.map((line) => (line.tls as { client?: object }).client);
  t.same(logged(require), [shown, shown]);
  t.same(logged(request), [undefined, shown, undefined, shown]);
  // A ticket that a gateway issued without a client certificate must not replace such a certificate at another gateway,
  // although both have the same ticket keys.
  const session = await sessionOf(notRequested);
  t.notOk(await isServed(require, { session }), 'a session of a gateway without client certificates is not resumed');
  t.match(await metricsOf(require), /reason="tls_client_certificate"\} [1-9]/);
});

t.test('a connection that fails its handshake is closed and counted, but not logged', async (t) => {
  const gateway = await startTestGateway(t, {
    config: { limits: { headersTimeoutSeconds: 3, connections: 3 } },
  });
  const plain = net.connect(gateway.https, '127.0.0.1');
  t.equal(await exchangeBytes(plain, requestBytes({})), '', 'plain HTTP gets no response');
  const garbage = net.connect(gateway.https, '127.0.0.1');
  t.notMatch(await exchangeBytes(garbage, '\x16\x03\x01\xff\xff'.repeat(100)), 'HTTP');
  const silent = [net.connect(gateway.https, '127.0.0.1'), net.connect(gateway.https, '127.0.0.1')];
  const slow = net.connect(gateway.https, '127.0.0.1');
  slow.write('\x16\x03\x01', 'latin1');
  const waiting = [...silent, slow];
  const closed = waiting.map((socket) => once(socket.on('error', () => undefined).resume(), 'close'));
  await Promise.all(waiting.map(async (socket) => socket.connecting && once(socket, 'connect')));
  const dropped = net.connect(gateway.https, '127.0.0.1').on('error', () => undefined);
  await once(dropped.resume(), 'close');
  await Promise.all(closed);
  const metrics = await metricsOf(gateway);
  t.match(metrics, /reason="tls_plain_http"\} 1\n/);
  t.match(metrics, /reason="tls_timeout"\} 3\n/);
  t.match(metrics, /_evicted_total\{reason="without_key"\} 1\n/, 'connections count before their handshake');
  t.same(gateway.lines, []);
  t.equal((await ask(gateway, {})).status, 401, 'the next client is served');
});

t.test('upstreams are verified by the configured CA and by their host name', async (t) => {
  const folder = t.testdir({});
  const elsewhere = await makeCertificate({ names: ['elsewhere.example'] });
  const serve = async (pems: SelfSigned): Promise<number> => {
    const server = https.createServer(pems, (_request, response) => response.end('{}')).listen(0, '127.0.0.1');
    server.on('tlsClientError', () => undefined);
    await once(server, 'listening');
    t.teardown(() => {
      server.closeAllConnections();
      server.close();
    });
    return (server.address() as AddressInfo).port;
  };
  const [good, wrong] = [await serve(ecdsa), await serve(elsewhere)];
  const { certFile: goodCa } = await files(folder, 'good', ecdsa);
  const { certFile: wrongCa } = await files(folder, 'wrong', elsewhere);
  const rows: readonly [string, number, string | null, number][] = [
    ['the CA that signed it', good, goodCa, 200],
    ['no authority', good, null, 502],
    ['another authority', good, wrongCa, 502],
    ['another name', wrong, wrongCa, 502],
  ];
  for (const [name, port, caFile, status] of rows) {
    const transactions = { url: `https://localhost:${port}`, caFile };
    const gateway = await startTestGateway(t, {
      config: {
        upstreams: { transactions },
        routes: [{ path: '/transactions', upstream: 'transactions', resource: 'transactions' }],
      },
    });
    t.equal((await ask(gateway, { headers: [key] })).status, status, name);
  }
});
