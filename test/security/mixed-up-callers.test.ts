import { once } from 'node:events';
import t from 'tap';
import { Random } from '../fuzz/random.js';
import { connect, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';

// Read buffers are reused. Code that keeps a part of one would see another caller's bytes there after the next packet.
t.test('no byte of one caller shows up in the request of another', async (t) => {
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
