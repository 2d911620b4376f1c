import dgram from 'node:dgram';
import { once } from 'node:events';
import t from 'tap';
import { testFront } from './cases.js';
import { connectClient, deploy, send } from './deployment.js';
import { caddy } from './fixture.js';
import { testHeaderValues } from './header-values.js';

testHeaderValues(caddy);
testFront(caddy);

/** RFC 9000 17.2: an Initial packet of an unsupported version; a server replies with the versions that it supports. */
function unknownVersionPacket(): Buffer {
  const packet = Buffer.alloc(1200);
  packet.writeUInt8(0xc0);
  packet.writeUInt32BE(0x1a2a3a4a, 1);
  for (const idLength of [5, 14]) packet.writeUInt8(8, idLength);
  return packet;
}

t.test('caddy: HTTP/3 is announced, and served on that port', { skip: caddy.missing }, async (t) => {
  const { front } = await deploy(t, caddy);
  const { headers } = await send(connectClient(t, front), {});
  t.match(headers['alt-svc'], `h3=":${front.port}"`);
  const socket = dgram.createSocket('udp4');
  t.teardown(() => socket.close());
  socket.send(unknownVersionPacket(), front.port, '127.0.0.1');
  const [reply] = (await once(socket, 'message')) as [Buffer];
  t.equal(reply.readUInt32BE(1), 0, 'a version negotiation packet');
  const versions = reply.subarray(5 + 1 + 8 + 1 + 8);
  const offered = Array.from({ length: versions.length / 4 }, (_, index) => versions.readUInt32BE(index * 4));
  t.ok(offered.includes(1), 'QUIC version 1');
});
