import { once } from 'node:events';
import net from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import t from 'tap';
import { readIntoSharedBuffer } from '../../src/http/shared-reads.js';
import { Random } from '../fuzz/random.js';
import { connect, liveKey, startTestGateway, startUpstream } from '../http/harness.js';

// All plain connections read into one buffer. Whoever kept a part of it would have the bytes of another caller there by the
// next packet: a key, or a payout.
t.test('nothing of a caller comes to stand in the request of another one', async (t) => {
  const seed = 20261121;
  const random = new Random(seed);
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { trustedProxies: ['127.0.0.1'] },
  });
  const callers = Array.from({ length: 40 }, (_, index) => {
    const letter = String.fromCharCode('A'.charCodeAt(0) + (index % 26));
    const body = letter.repeat(1 + random.below(30_000));
    const name = `caller-${index}-${letter.repeat(random.below(300))}`;
    const framing = random.oneIn(2)
      ? `Content-Length: ${body.length}\r\n\r\n${body}`
      : `Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\nX-Trailer: ${name}\r\n\r\n`;
    const head = `POST /v1/payouts?${index} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-Proto: https\r\nx-api-key: ${liveKey}\r\n`;
    return { name, body, socket: connect(gateway.http, null), left: `${head}X-Name: ${name}\r\n${framing}`.repeat(2) };
  });
  await Promise.all(callers.map(({ socket }) => once(socket, 'connect')));
  for (const { socket } of callers) socket.setNoDelay(true).resume();
  while (callers.some(({ left }) => left.length > 0)) {
    const caller = random.pick(callers);
    const size = random.pick([1, 1 + random.below(60), 1 + random.below(20_000)]);
    const part = caller.left.slice(0, size);
    caller.left = caller.left.slice(size);
    if (part.length > 0) await new Promise((resolve) => caller.socket.write(part, resolve));
    await new Promise((resolve) => setImmediate(resolve));
  }
  while (gateway.lines.length < 2 * callers.length) await new Promise((resolve) => setTimeout(resolve, 5));
  for (const [index, { name, body }] of callers.entries()) {
    const seen = upstream.seen.filter(({ url }) => url === `/payouts?${index}`);
    const told = seen.map(({ headers, body: sent }) => headers['x-name'] === name && sent.toString() === body);
    t.same(told, [true, true], `seed ${seed}, caller ${index}`);
  }
});

t.test('a connection is taken over on this Node, and its server counts it until it is gone', async (t) => {
  const taken: { accepted: Socket; connection: Socket; bytes: Buffer[] }[] = [];
  const server = net.createServer({ allowHalfOpen: true }, (accepted) => {
    const connection = readIntoSharedBuffer(accepted);
    const bytes: Buffer[] = [];
    connection.on('data', (part: Buffer) => bytes.push(part));
    taken.push({ accepted, connection, bytes });
  });
  server.maxConnections = 2;
  const counted = (): Promise<number> =>
    new Promise((resolve) => {
      server.getConnections((_error, count) => {
        resolve(count);
      });
    });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const open = (): Socket => net.connect((server.address() as AddressInfo).port, '127.0.0.1');

  const callers = [open(), open()];
  for (const caller of callers) {
    caller.write('hello');
    while (taken.every(({ bytes }) => bytes.length === callers.indexOf(caller)))
      await new Promise((resolve) => setTimeout(resolve, 1));
    while (taken.at(callers.indexOf(caller))?.bytes.length !== 1)
      await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const [first, second] = taken;
  t.not(first?.accepted, first?.connection, 'this Node has a handle to hand over');
  t.equal(first?.bytes[0]?.buffer, second?.bytes[0]?.buffer, 'into one buffer');
  t.equal(first?.connection.remotePort, callers[0]?.localPort);
  t.equal(first?.connection.allowHalfOpen, true);
  t.equal(await counted(), 2);
  const third = open();
  await once(third, 'close');
  t.equal(taken.length, 2, 'one more is dropped');

  callers[0]?.destroy();
  if (first) {
    first.connection.end();
    await once(first.accepted, 'close');
  }
  t.equal(await counted(), 1);
  const fourth = open();
  while (taken.length < 3) await new Promise((resolve) => setTimeout(resolve, 1));
  for (const { connection } of taken) connection.destroy();
  for (const caller of [...callers, fourth]) caller.destroy();
  const closed = once(server, 'close');
  server.close();
  await closed;
  t.equal(await counted(), 0);

  const gone = new net.Socket();
  t.equal(readIntoSharedBuffer(gone), gone, 'without a handle it is left as it is');
});
