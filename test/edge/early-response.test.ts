import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { startHastyService } from '../fuzz/hasty-service.js';
import { connect, exchangeBytes, liveKey, startBareUpstream, startTestGateway } from './harness.js';
import type { GatewayUnderTest, Teardown } from './harness.js';

const protocols = ['HTTP', 'HTTP over TLS'] as const;

function post(declared: number, sent = declared): string {
  const head = `POST /v1/dev/customers/1 HTTP/1.1\r\nHost: localhost\r\nx-forwarded-proto: https\r\nx-api-key: ${liveKey}\r\n`;
  return `${head}x-answer: early\r\nContent-Length: ${declared}\r\n\r\n${'a'.repeat(sent)}`;
}

async function startHasty(t: Teardown): Promise<GatewayUnderTest> {
  const service = await startHastyService(t);
  return startTestGateway(t, { upstreamUrl: service.url, config: { trustedProxies: ['127.0.0.1'] } });
}

/** A connection and the bytes received on it. */
function open(
  gateway: GatewayUnderTest,
  protocol: (typeof protocols)[number],
): { socket: Socket; received: () => string } {
  const socket = protocol === 'HTTP' ? connect(gateway.http, null) : connect(gateway.https, gateway.ca);
  let received = '';
  socket.on('error', () => undefined).on('data', (bytes: Buffer) => (received += bytes.toString('latin1')));
  return { socket, received: () => received };
}

/**
 * Returns whether the condition is met within about five seconds, which is less than any timeout of the gateway. A
 * pause of the whole process counts as one turn, however long it is.
 */
async function soon(comes: () => boolean): Promise<boolean> {
  for (let turn = 0; !comes() && turn < 1_000; turn += 1) await wait(5);
  return comes();
}

// Regression: the gateway did not read the rest of a body that arrived when the response had already been sent. The
// next request on the connection then waited for half a minute.
t.test('after a response that precedes the body, the connection serves its next request', async (t) => {
  const gateway = await startHasty(t);
  for (const protocol of protocols) {
    const { socket, received } = open(gateway, protocol);
    socket.write(post(40_000, 10_000).replace('/v1/dev/customers/1', '/v1/nowhere'));
    t.ok(await soon(() => received().includes('"Not found"')), `${protocol}: the refusal`);
    socket.write('a'.repeat(30_000) + post(2));
    t.ok(await soon(() => received().includes('HTTP/1.1 200 OK')), `${protocol}: the next response`);
    socket.destroy();
  }
});

// Regression: the gateway's response promised keep-alive to a client that had half-closed its connection. The
// connection then stayed open for half a minute.
t.test('a connection that its client half-closes within a body is closed after the response', async (t) => {
  const gateway = await startHasty(t);
  for (const protocol of protocols) {
    for (const milliseconds of [0, 0, 1, 1, 2, 2, 5, 50]) {
      const { socket, received } = open(gateway, protocol);
      socket.write(post(40_000, 37_000));
      await wait(milliseconds);
      socket.end();
      t.ok(await soon(() => socket.destroyed), `${protocol}, ${milliseconds} ms: ${received().slice(0, 20)}`);
      socket.destroy();
    }
  }
});

/** Posts a body that arrives in several pieces; resolves with all received bytes once the connection ends. */
function postAll(gateway: GatewayUnderTest, protocol: (typeof protocols)[number]): Promise<string> {
  const bytes = post(300_000).replace('Host:', 'Connection: close\r\nHost:');
  const socket = protocol === 'HTTP' ? connect(gateway.http, null) : connect(gateway.https, gateway.ca);
  return exchangeBytes(socket, bytes);
}

// Regression: after the service had closed the connection, the gateway could not write the rest of the body. It then
// ignored the response of the service and sent 502 to the client.
t.test('the response of a service that closes without reading the body is forwarded', async (t) => {
  const upstreamUrl = await startBareUpstream(t, (socket) => {
    socket
      .on('error', () => undefined)
      .once('data', () => {
        socket.pause().end('HTTP/1.1 413 Payload Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge');
        socket.destroySoon();
      });
  });
  const gateway = await startTestGateway(t, { upstreamUrl, config: { trustedProxies: ['127.0.0.1'] } });
  for (const protocol of protocols) {
    const responses = new Set<string>();
    for (let count = 0; count < 20; count += 1) {
      const received = await postAll(gateway, protocol);
      responses.add(`${received.slice(9, 12)} ${received.split('\r\n\r\n')[1] ?? ''}`);
    }
    t.strictSame([...responses], ['413 large'], protocol);
  }
});

// After a write to the service has failed with a reset, the gateway's next read looks like a clean end of the
// connection. Such an end completes a response that has no length, so the gateway must remember the reset.
t.test('a response without a length is incomplete if its service reset the connection', async (t) => {
  const upstreamUrl = await startBareUpstream(t, (socket) => {
    socket
      .on('error', () => undefined)
      .once('data', () => {
        socket.pause().write('HTTP/1.1 413 Payload Too Large\r\n\r\nhalf an ans', () => socket.resetAndDestroy());
      });
  });
  const gateway = await startTestGateway(t, { upstreamUrl, config: { trustedProxies: ['127.0.0.1'] } });
  for (const protocol of protocols) {
    for (let count = 0; count < 20; count += 1) {
      const received = await postAll(gateway, protocol);
      const isWhole = received.startsWith('HTTP/1.1 413') && received.endsWith('0\r\n\r\n');
      t.notOk(isWhole || received.includes('Content-Length: 11'), `${protocol}: ${received.slice(0, 12)}`);
    }
  }
});

// Regression: uploads were cut off 2 s after the response. Most clients send everything before they read, so they lost
// the response.
t.test('a slow upload may continue after its response, within its limits', async (t) => {
  const gateway = await startTestGateway(t, { config: { trustedProxies: ['127.0.0.1'] } });
  const head = (framing: string): string =>
    `POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nx-forwarded-proto: https\r\n${framing}\r\n\r\n`;
  const uploads = [
    ['chunked', head('Transfer-Encoding: chunked'), `3e8\r\n${'a'.repeat(1_000)}\r\n`, '0\r\n\r\n'],
    ['with a length', head('Content-Length: 100000'), 'a'.repeat(10_000), ''],
    ['small, on its last request', head('Content-Length: 40000\r\nConnection: close'), 'a'.repeat(4_000), ''],
  ] as const;
  const all = uploads.flatMap(([name, begin, piece, end]) =>
    protocols.map(async (protocol) => {
      const { socket, received } = open(gateway, protocol);
      socket.allowHalfOpen = true;
      socket.write(begin);
      for (let count = 0; count < 10; count += 1) {
        await wait(300);
        if (socket.destroyed) break;
        socket.write(piece);
      }
      t.notOk(socket.destroyed, `${name}, ${protocol}: not cut off`);
      socket.write(end);
      t.match(received(), /^HTTP\/1\.1 401 [^]*"API Key is required"/, `${name}, ${protocol}`);
      socket.destroy();
    }),
  );
  await Promise.all(all);
});

t.test('an upload after its response is cut off beyond its size or time limit', async (t) => {
  const limits = { bodyBytes: 200_000, requestTimeoutSeconds: 1, headersTimeoutSeconds: 1 };
  const gateway = await startTestGateway(t, { config: { trustedProxies: ['127.0.0.1'], limits } });
  const upload = async (piece: string, milliseconds: number): Promise<boolean> => {
    const { socket } = open(gateway, 'HTTP');
    socket.allowHalfOpen = true;
    socket.write('POST /v1/payouts HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n');
    const more = setInterval(() => socket.writable && socket.write(piece), milliseconds);
    const isOver = await soon(() => socket.destroyed);
    clearInterval(more);
    socket.destroy();
    return isOver;
  };
  const piece = `ea60\r\n${'a'.repeat(60_000)}\r\n`;
  t.same(await Promise.all([upload(piece, 5), upload('1\r\na\r\n', 100)]), [true, true]);
});

// Regression: the client got `HTTP/1.1 499 unknown`, a code of the log and not a status of HTTP.
t.test('a client that half-closes within a body gets only a registered HTTP status', async (t) => {
  const gateway = await startHasty(t);
  for (const protocol of protocols) {
    for (const [declared, sent] of [
      [100, 50],
      [40_000, 10_000],
      [400_000, 100_000],
    ] as const) {
      const { socket, received } = open(gateway, protocol);
      socket.write(post(declared, sent).replace('x-answer: early', 'x-answer: late'));
      await wait(5);
      socket.end();
      t.ok(await soon(() => socket.destroyed && gateway.lines.length > 0), `${protocol}, ${declared}`);
      // The random request id can contain these digits.
      t.notMatch(received().replaceAll(/^x-request-id: .*$/gim, ''), /499/, `${protocol}, ${declared}`);
      gateway.lines.length = 0;
    }
  }
});
