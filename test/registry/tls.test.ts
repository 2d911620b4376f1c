import { once } from 'node:events';
import { mkdtemp, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import tls from 'node:tls';
import t, { type Test } from 'tap';
import type { RegistryAccess } from '../../src/registry/own-host.js';
import { createRestApp } from '../../src/rest/rest-app.js';
import { ServerTls } from '../../src/tls/server-tls.js';
import { type CertificateSetup, makeCertificate } from '../edge/certificates.js';
import { registryFixture, token } from './registry-fixture.js';

const authorization = `Bearer ${token}`;
const clock = { now: () => Date.now() };

/** Certificate files in a temporary directory. `write` replaces them. */
async function filesFor(t: Test, setup: CertificateSetup = {}) {
  const directory = await mkdtemp(path.join(os.tmpdir(), 'registry-tls-'));
  const certFile = path.join(directory, 'tls.crt');
  const keyFile = path.join(directory, 'tls.key');
  const write = async (changed: CertificateSetup) => {
    const pair = await makeCertificate(changed);
    await writeFile(certFile, pair.cert);
    await writeFile(keyFile, pair.key, { mode: 0o600 });
    return pair;
  };
  const pair = await write(setup);
  const logged: { level: string; message: string; problem?: string }[] = [];
  const at = (level: string) => (details: object, message: string) =>
    void logged.push({ level, message, ...(details as { problem?: string }) });
  const log = { info: at('info'), warn: at('warn'), error: at('error') };
  const open = async (clientCaFile: string | null = null) => {
    const opened = await ServerTls.open({ certFile, keyFile, clientCaFile }, 'registry.listen', clock, log);
    t.teardown(() => opened.stop());
    return opened;
  };
  return { directory, certFile, keyFile, pair, write, logged, open };
}

/** Starts the admin API with this access on a free loopback port. */
async function listening(t: Test, access: RegistryAccess) {
  const { app } = await registryFixture(t, 'sqlite::memory:', { access });
  await app.listen({ host: '127.0.0.1', port: 0 });
  return { port: (app.server.address() as AddressInfo).port };
}

interface Sent extends Omit<https.RequestOptions, 'headers'> {
  readonly headers?: Readonly<Record<string, string>>;
}

async function get(port: number, options: Sent = {}): Promise<{ status: number; serial: string; text: string }> {
  const request = https.get({
    host: '127.0.0.1',
    port,
    path: '/merchants',
    agent: false,
    rejectUnauthorized: false,
    ...options,
    headers: { authorization, host: 'localhost', ...options.headers },
  });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const { serialNumber: serial } = (
    response.socket as unknown as Pick<tls.TLSSocket, 'getPeerCertificate'>
  ).getPeerCertificate();
  let text = '';
  for await (const chunk of response) text += String(chunk);
  return { status: response.statusCode ?? 0, serial, text };
}

t.test('a new certificate is used for new connections; a broken one is logged, and the old one stays', async (t) => {
  const { write, open, logged, certFile } = await filesFor(t);
  const opened = await open();
  const { port } = await listening(t, { tls: opened, hosts: [], behindProxy: null });
  const first = await get(port);
  t.equal(first.status, 200);

  await write({});
  await opened.check();
  const second = await get(port);
  t.not(second.serial, first.serial, 'the new certificate');
  t.same(logged, [{ level: 'info', message: 'the new certificate is in use', option: 'registry.listen' }]);

  logged.length = 0;
  await writeFile(certFile, 'no certificate');
  await opened.check();
  await opened.check();
  t.equal((await get(port)).serial, second.serial, 'the old certificate stays');
  t.match(logged, [{ level: 'error', problem: /is not a PEM certificate/ }], 'logged once');
  t.equal(logged.length, 1);
  const { text } = await get(port, { path: '/metrics' });
  t.match(text, /^registry_tls_files_usable 0$/m);
  t.match(text, /^registry_tls_certificate_not_after_seconds 1[0-9.e+]+$/m);
  t.match(text, /^registry_tls_certificate_not_before_seconds 1[0-9.e+]+$/m);

  await write({ notAfter: Date.now() - 1000 });
  await opened.check();
  t.equal((await get(port)).serial, second.serial, 'an expired certificate is not used');
  t.match(logged.at(-1), { level: 'error', problem: /has expired/ });

  const { cert } = await write({});
  await opened.check();
  t.not((await get(port)).serial, second.serial);
  t.match((await get(port, { path: '/metrics' })).text, /^registry_tls_files_usable 1$/m);
  t.ok(cert.startsWith('-----BEGIN'));
});

t.test('the API speaks HTTP/1.1 only, over TLS 1.2 or 1.3', async (t) => {
  const { open } = await filesFor(t);
  const { port } = await listening(t, { tls: await open(), hosts: [], behindProxy: null });
  const connect = async (options: tls.ConnectionOptions): Promise<string | false | null> => {
    const socket = tls.connect({ host: '127.0.0.1', port, rejectUnauthorized: false, ...options });
    t.teardown(() => socket.destroy());
    await once(socket, 'secureConnect');
    return socket.alpnProtocol;
  };
  t.equal(await connect({ ALPNProtocols: ['h2', 'http/1.1'] }), 'http/1.1');
  t.equal(await connect({}), false, 'a client without ALPN is served');
  await t.rejects(connect({ ALPNProtocols: ['h2'] }), { code: 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL' });
  await t.rejects(connect({ maxVersion: 'TLSv1.1', minVersion: 'TLSv1' }));
});

t.test('a client certificate is optional, but must be valid, and replaces no token', async (t) => {
  const { open, directory } = await filesFor(t);
  const ca = await makeCertificate({ names: ['clients'] });
  const caFile = path.join(directory, 'clients.crt');
  await writeFile(caFile, ca.cert);
  const { port } = await listening(t, { tls: await open(caFile), hosts: [], behindProxy: null });
  const known = await makeCertificate({ names: ['ada'], ca });
  t.equal((await get(port)).status, 200, 'without a certificate');
  t.equal((await get(port, { cert: known.cert, key: known.key })).status, 200, 'with a certificate of the CA');
  t.equal((await get(port, { ...known, headers: { authorization: 'Bearer x' } })).status, 401);
  await t.rejects(get(port, await makeCertificate({ names: ['mallory'] })), 'with a certificate of another CA');
});

t.test('an app without these files is unaffected, and unusable files are an error at the start', async (t) => {
  const { certFile, directory, open } = await filesFor(t);
  const other = await filesFor(t);
  const plain = createRestApp({ admit: () => undefined });
  await plain.ready();
  t.notOk(plain.server instanceof tls.Server);
  await plain.close();
  const mixed = { certFile, keyFile: other.keyFile, clientCaFile: null };
  await t.rejects(ServerTls.open(mixed, 'registry.listen', clock), { message: /do not belong together/ });
  await t.rejects(open(path.join(directory, 'missing.crt')), { message: /missing\.crt/ });
});
