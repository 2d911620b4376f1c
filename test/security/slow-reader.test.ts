import { once } from 'node:events';
import t from 'tap';
import { ask, connect, liveKey, requestBytes, startTestGateway, startUpstream } from '../http/harness.js';

// A caller who takes nothing of a large answer kept its place upstream without limit: two such callers were enough to
// shut everybody else out.
t.test('a caller who does not read its answer loses it, and the place upstream is free again', async (t) => {
  const upstream = await startUpstream(t);
  upstream.respond = (_request, response) => response.end(Buffer.alloc(30_000_000));
  const gateway = await startTestGateway(t, {
    config: {
      upstreams: { transactions: { url: upstream.url, maxInFlight: 2 } },
      limits: { requestTimeoutSeconds: 1, headersTimeoutSeconds: 1 },
    },
  });
  const key = ['x-api-key', liveKey] as const;
  const sleepers = [connect(gateway.https, gateway.ca), connect(gateway.https, gateway.ca)];
  for (const socket of sleepers) {
    socket.on('error', () => undefined);
    socket.write(requestBytes({ headers: [key] }));
    await once(socket, 'readable');
  }
  t.equal((await ask(gateway, { headers: [key] })).status, 503, 'every place is taken');
  while (gateway.lines.length < 3) await new Promise((resolve) => setTimeout(resolve, 10));
  t.match(gateway.lines[1], { event: { code: 'client_closed' } });
  upstream.respond = (_request, response) => response.end('{}');
  t.equal((await ask(gateway, { headers: [key] })).status, 200);
  for (const socket of sleepers) socket.destroy();
});

// What had come from a service that was done with its answer, and closed its side, was lost on a caller who paused.
t.test(
  'a caller who pauses gets all of its answer, also of a service that has closed its connection since',
  async (t) => {
    const upstream = await startUpstream(t);
    const size = 300_000;
    upstream.respond = (_request, response) => {
      response.end(Buffer.alloc(size, 0x61), () => response.socket?.end());
    };
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
    for (let count = 0; count < 3; count += 1) {
      const socket = connect(gateway.https, gateway.ca);
      let bytes = 0;
      socket.write(requestBytes({ headers: [['x-api-key', liveKey]] }));
      await once(socket, 'readable');
      await new Promise((resolve) => setTimeout(resolve, 100));
      socket.on('data', (chunk: Buffer) => (bytes += chunk.length)).resume();
      await once(socket, 'close');
      t.ok(bytes > size, `${bytes} bytes`);
    }
    t.ok(gateway.lines.every((line) => (line.event as { code: string }).code === 'accepted'));
  },
);
