import { once } from 'node:events';
import tls from 'node:tls';
import t from 'tap';
import { startTestGateway } from '../edge/harness.js';

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

t.test('keys are exchanged on cheap curves alone, with and without a name', async (t) => {
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
