import { once } from 'node:events';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import t from 'tap';
import { ask, connect, liveKey, requestBytes, startTestGateway, startUpstream } from '../edge/harness.js';

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

// The answers of the gateway itself had no such limit on HTTP/1.1: a caller who asked without a key and read nothing kept
// its connection for as long as it liked.
t.test('a caller who does not read its refusals is cut off', async (t) => {
  const upstream = await startUpstream(t);
  const limits = { requestTimeoutSeconds: 1, headersTimeoutSeconds: 1 };
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { limits, trustedProxies: ['127.0.0.1'] },
  });
  upstream.respond = (_request, response) => response.end(Buffer.alloc(15_000, 0x61));
  const get = 'GET /v1/transactions HTTP/1.1\r\nHost: localhost\r\nx-forwarded-proto: https\r\n';
  const open = { HTTP: () => connect(gateway.http, null), TLS: () => connect(gateway.https, gateway.ca) };
  /** Asks one after the other, and reads nothing, until an answer is not taken; for so many answers and then refusals. */
  const askWithoutReading = async (socket: Socket, answers: number): Promise<number> => {
    socket.on('error', () => undefined).pause();
    await once(socket, socket instanceof TLSSocket ? 'secureConnect' : 'connect');
    gateway.lines.length = 0;
    let asked = 0;
    do {
      socket.write(asked < answers ? `${get}x-api-key: ${liveKey}\r\n\r\n` : `${get}\r\n`);
      asked += 1;
    } while (await linesWithin(asked, 400));
    return asked;
  };
  const linesWithin = async (count: number, milliseconds: number): Promise<boolean> => {
    const end = Date.now() + milliseconds;
    while (gateway.lines.length < count && Date.now() < end) await new Promise((resolve) => setImmediate(resolve));
    return gateway.lines.length >= count;
  };
  for (const [protocol, connected] of Object.entries(open)) {
    // How many large answers the kernel takes, more or less; the rest of its room is for refusals.
    const first = connected();
    const taken = await askWithoutReading(first, Infinity);
    first.destroy();
    await linesWithin(taken, 2_000);
    const socket = connected();
    const asked = await askWithoutReading(socket, Math.floor(taken * 0.8));
    t.ok(await linesWithin(asked, 4_000), `${protocol}: the last of ${asked} answers is over`);
    t.match(gateway.lines.at(-1), { event: { code: 'key_required' } });
    socket.resume();
    await once(socket, 'close');
  }
});

t.test('the time that an answer may stall is not that of the request behind it', async (t) => {
  const upstream = await startUpstream(t);
  const limits = { requestTimeoutSeconds: 1, headersTimeoutSeconds: 1 };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { limits } });
  upstream.respond = (_request, response) => {
    if (upstream.seen.length === 1) response.end(Buffer.alloc(10_000_000, 0x61));
    else setTimeout(() => response.end('{}'), 2_500);
  };
  const socket = connect(gateway.https, gateway.ca);
  let end = '';
  const headers = [['x-api-key', liveKey]] as const;
  socket.write(requestBytes({ headers }).replace('Connection: close\r\n', '') + requestBytes({ headers }));
  await once(socket, 'readable');
  await new Promise((resolve) => setTimeout(resolve, 300));
  socket.on('data', (chunk: Buffer) => (end = (end + chunk.toString('latin1')).slice(-1_000))).resume();
  await once(socket, 'close');
  t.match(end, /HTTP\/1\.1 200 OK\r\n[^]*\r\n\r\n\{\}$/);
});
