import type { ServerResponse } from 'node:http';
import { setImmediate as turn, setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { ask, connect, exchangeBytes, liveKey, parseResponse, requestBytes } from './harness.js';
import { startTestGateway, startUpstream } from './harness.js';
import type { GatewayUnderTest, RecordingUpstream } from './harness.js';

// Ends a test after this time, in milliseconds, if it waits for a condition that is never met.
const hang = { timeout: 30_000 };
const key = ['x-api-key', liveKey] as const;
/** A request with side effects: it runs to completion although its client leaves before the response starts. */
const post = { method: 'POST', path: '/v1/payouts', headers: [key], body: '{}' } as const;
const overTls = { trustedProxies: ['127.0.0.1'] };
const large = 32_000_000;

/**
 * Writes a response in pieces, each after the gateway has read the previous piece. After a stall of the process, timers
 * fire before the sockets are read. So a wait alone would not keep two pieces apart.
 */
async function writeApart(response: ServerResponse, pieces: readonly Buffer[]): Promise<void> {
  const isRead = async (): Promise<void> => {
    await wait(5);
    for (let turns = 0; turns < 3; turns += 1) await turn();
  };
  response.flushHeaders();
  for (const piece of pieces) {
    await isRead();
    response.write(piece);
  }
  await isRead();
  response.end();
}

/**
 * Resolves when the gateway has closed its upstream connections. Fails after ten seconds, before a timeout of the
 * upstream could close them.
 */
async function closeOf({ sockets }: RecordingUpstream): Promise<void> {
  const end = Date.now() + 10_000;
  while (sockets.size > 0) {
    if (Date.now() > end) throw new Error('a connection to the upstream is still open');
    await wait(1);
  }
}

/** Waits until the access log has at least this number of lines, and returns all its lines. */
async function linesOf(gateway: GatewayUnderTest, count: number): Promise<Record<string, unknown>[]> {
  while (gateway.lines.length < count) await wait(1);
  return gateway.lines;
}

t.test('a response in several pieces is forwarded byte for byte over each protocol', hang, async (t) => {
  const everyByte = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
  const bodies: readonly (readonly Buffer[])[] = [
    [everyByte, everyByte],
    [Buffer.concat(Array.from({ length: 700 }, () => everyByte)), everyByte, Buffer.alloc(40_000, 0xe9)],
    [Buffer.from('an "é" as UTF-8 has it')],
    [],
  ];
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: overTls });
  const forwarded = ['x-forwarded-proto', 'https'] as const;
  const whole = requestBytes({ headers: [key, forwarded] });
  for (const pieces of bodies) {
    const body = Buffer.concat(pieces).toString('latin1');
    for (const framing of ['content-length', 'transfer-encoding']) {
      upstream.respond = (_request, response) => {
        if (framing === 'content-length') response.setHeader(framing, body.length);
        response.setHeader('etag', '"x"');
        void writeApart(response, pieces);
      };
      const name = `${framing}, ${body.length} bytes`;
      const responses = {
        'HTTP/1.1': parseResponse(await exchangeBytes(connect(gateway.http, null), whole)),
        'HTTP/1.1 over TLS': await ask(gateway, { headers: [key] }),
        'HTTP/1.0': parseResponse(
          await exchangeBytes(connect(gateway.http, null), whole.replace('HTTP/1.1', 'HTTP/1.0')),
        ),
      };
      for (const [protocol, response] of Object.entries(responses)) {
        t.equal(response.status, 200, `${protocol}: ${name}`);
        t.equal(response.header('etag'), '"x"');
        t.equal(response.header('content-type'), undefined, 'no content-type is added');
        t.match(response.header('x-request-id'), /^[0-9A-Z]{26}$/);
        const isChunked = response.header('transfer-encoding') === 'chunked';
        t.equal(isChunked, framing === 'transfer-encoding' && protocol !== 'HTTP/1.0');
        t.ok((isChunked ? unchunked(response.body) : response.body) === body, `${protocol}: ${name}: every byte`);
      }
      const lines = await linesOf(gateway, 3);
      for (const line of lines.splice(0)) {
        t.match(line, { event: { code: 'accepted' }, http: { response: { body: { bytes: body.length } } } });
      }
    }
  }
  t.same(gateway.internalErrors, []);
});

/** The body of a chunked response. */
function unchunked(chunks: string): string {
  let body = '';
  for (let at = 0; ;) {
    const lineEnd = chunks.indexOf('\r\n', at);
    const size = Number.parseInt(chunks.slice(at, lineEnd), 16);
    if (size === 0) return body;
    body += chunks.slice(lineEnd + 2, lineEnd + 2 + size);
    at = lineEnd + 2 + size + 2;
  }
}

t.test('backpressure: a service waits while its client reads nothing', hang, async (t) => {
  const upstream = await startUpstream(t);
  let taken = 0;
  upstream.respond = (_request, response) => {
    const piece = Buffer.alloc(100_000);
    const write = (): void => {
      taken += piece.length;
      if (taken <= large) response.write(piece, write);
    };
    write();
  };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: overTls });
  const socket = connect(gateway.https, gateway.ca).on('error', () => undefined);
  socket.pause().write(requestBytes(post));
  for (let before = -1; taken === 0 || taken !== before;) {
    before = taken;
    await wait(200);
  }
  t.ok(taken < large / 2, `${taken} of ${large} bytes were read from the service`);
  socket.destroy();
  await closeOf(upstream);
  t.match(
    await linesOf(gateway, 1),
    [{ event: { code: 'client_closed' } }],
    'the log reports the client that left during the response',
  );
});

// Regression: at a timeout the gateway considered only the newest request of the connection. The response to that
// request had not begun. So the gateway closed the connection, although an earlier response was still being sent.
t.test('a service may pause in its response while another request waits behind it', hang, async (t) => {
  const upstream = await startUpstream(t);
  upstream.respond = (_request, response) => {
    if (upstream.seen.length > 1) {
      response.end('{}');
      return;
    }
    response.setHeader('content-length', 2);
    response.write('a');
    setTimeout(() => response.end('b'), 5_000);
  };
  const limits = { headersTimeoutSeconds: 2, requestTimeoutSeconds: 2 };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config: { limits } });
  const request = requestBytes({ headers: [key] });
  const received = await exchangeBytes(
    connect(gateway.https, gateway.ca),
    request.replace('Connection: close\r\n', '') + request,
  );
  t.match(
    received,
    /^HTTP\/1\.1 200 OK\r\n[^]*\r\n\r\nabHTTP\/1\.1 200 OK\r\n[^]*\{\}$/,
    'both responses are complete',
  );
});

t.test('the response to a client that has already left is not read to its end', hang, async (t) => {
  const upstream = await startUpstream(t);
  let respond = (): void => undefined;
  const asked = new Promise<void>((resolve) => {
    upstream.respond = (_request, response) => {
      respond = () => {
        response.setHeader('content-length', large);
        response.write(Buffer.alloc(100_000));
      };
      resolve();
    };
  });
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const socket = connect(gateway.https, gateway.ca).on('error', () => undefined);
  socket.write(requestBytes(post));
  await asked;
  socket.destroy();
  t.match(await linesOf(gateway, 1), [{ event: { code: 'client_closed' } }]);
  t.equal(upstream.sockets.size, 1);
  respond();
  await closeOf(upstream);
  t.equal(gateway.lines.length, 1);
  t.same(gateway.internalErrors, []);
});
