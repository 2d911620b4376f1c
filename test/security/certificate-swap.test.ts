import { rename, symlink } from 'node:fs/promises';
import https from 'node:https';
import path from 'node:path';
import t from 'tap';
import { makeCertificate } from '../edge/certificates.js';
import { ask, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';

const key = ['x-api-key', liveKey] as const;
const replacements = 50;

// A certificate is replaced while requests come in; whoever is in the middle of a handshake or of a request then must
// not notice it, and neither must whoever has a connection from long before.
t.test('a certificate is replaced fifty times under load, and no request fails', async (t) => {
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

t.test('a swap that comes while the files are read is no half of a pair', async (t) => {
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
