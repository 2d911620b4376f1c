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

/** A connection, and what has come over it. */
function open(
  gateway: GatewayUnderTest,
  protocol: (typeof protocols)[number],
): { socket: Socket; received: () => string } {
  const socket = protocol === 'HTTP' ? connect(gateway.http, null) : connect(gateway.https, gateway.ca);
  let received = '';
  socket.on('error', () => undefined).on('data', (bytes: Buffer) => (received += bytes.toString('latin1')));
  return { socket, received: () => received };
}

/** Waits for less than any limit of time would take, and says whether it came so far. */
async function soon(comes: () => boolean): Promise<boolean> {
  for (const end = Date.now() + 5_000; !comes() && Date.now() < end;) await wait(5);
  return comes();
}

// What came of a body behind its answer was not read, and nothing behind it: the next request waited for half a minute.
t.test('behind an answer that comes before the body, the connection carries its next request', async (t) => {
  const gateway = await startHasty(t);
  for (const protocol of protocols) {
    const { socket, received } = open(gateway, protocol);
    socket.write(post(40_000, 10_000));
    t.ok(await soon(() => received().endsWith('{}')), `${protocol}: the early answer`);
    socket.write('a'.repeat(30_000) + post(2));
    t.ok(await soon(() => received().split('HTTP/1.1 200 OK').length === 3), `${protocol}: the next answer`);
    socket.destroy();
  }
});

// Its answer promised to keep the connection: nobody closed it for half a minute.
t.test('a connection whose client ends it within a body is closed with the answer', async (t) => {
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

/** Posts a body that is in several pieces when it comes, and closes the connection with its answer. */
function postAll(gateway: GatewayUnderTest, protocol: (typeof protocols)[number]): Promise<string> {
  const bytes = post(300_000).replace('Host:', 'Connection: close\r\nHost:');
  const socket = protocol === 'HTTP' ? connect(gateway.http, null) : connect(gateway.https, gateway.ca);
  return exchangeBytes(socket, bytes);
}

// The next piece of the body could not be written, which destroyed the connection with the answer that lay there: 502.
t.test('the answer of a service that closes over a body that it does not want is passed on', async (t) => {
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
    const answers = new Set<string>();
    for (let count = 0; count < 20; count += 1) {
      const received = await postAll(gateway, protocol);
      answers.add(`${received.slice(9, 12)} ${received.split('\r\n\r\n')[1] ?? ''}`);
    }
    t.strictSame([...answers], ['413 large'], protocol);
  }
});

// What is read behind a write that heard of the reset looks as if the connection had ended well.
t.test('an answer without a length is not whole where its service has reset the connection', async (t) => {
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
