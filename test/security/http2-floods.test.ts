import t from 'tap';
import type { ServerResponse } from 'node:http';
import { liveKey, startTestGateway, startUpstream } from '../http/harness.js';
import type { GatewayUnderTest } from '../http/harness.js';
import { endHeaders, endStream, frame, FrameConnection, headerBlock, headersFrames } from '../http/http2-frames.js';
import { requestFields, uint32 } from '../http/http2-frames.js';

const key = ['x-api-key', liveKey] as const;
const enhanceYourCalm = 11;
const cancel = uint32(8);

async function refusedConnections(gateway: GatewayUnderTest, reason: string): Promise<number> {
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  return Number(new RegExp(`gateway_connections_refused_total\\{reason="${reason}"\\} (\\d+)`).exec(metrics)?.[1] ?? 0);
}

/** Who still sends when the connection is closed gets a TCP reset, and that may overtake the GOAWAY before it. */
function wasToldOrCutOff(connection: FrameConnection): boolean {
  return connection.closed && [enhanceYourCalm, null].includes(connection.goaway());
}

/** Sends until the connection is closed, and not without end. */
async function flood(connection: FrameConnection, most: number, bytesOf: (count: number) => Buffer): Promise<number> {
  let count = 0;
  while (!connection.closed && count < most) {
    connection.send(bytesOf(count));
    count += 1;
    if (count % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  await connection.untilClosed();
  return count;
}

// CVE-2023-44487 (rapid reset): a request that is taken back at once costs the client nothing and the server all of it,
// and is not counted among the streams that are open.
t.test('a client that takes its requests back again and again is cut off, and nobody else is', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const other = new FrameConnection(gateway.https, gateway.ca);
  const connection = new FrameConnection(gateway.https, gateway.ca);
  await flood(connection, 20_000, (count) => {
    const stream = 1 + 2 * count;
    const request = headersFrames(stream, endStream, requestFields('GET', '/v1/transactions', [key]));
    return Buffer.concat([request, frame('rstStream', 0, stream, cancel)]);
  });
  t.ok(wasToldOrCutOff(connection), `GOAWAY ${connection.goaway() ?? 'not read'}`);
  t.equal(await refusedConnections(gateway, 'http2_flood'), 1);
  t.ok(gateway.lines.length < 2_000, `${gateway.lines.length} requests`);
  other.ask(1, 'GET', '/v1/transactions', [key]);
  await other.until(() => other.isOver(1));
  t.match(other.body(1), '"success":true');
  other.socket.destroy();
});

// CVE-2019-9512 and CVE-2019-9515: each PING and each SETTINGS wants an answer.
t.test('PING and SETTINGS floods are cut off', async (t) => {
  const gateway = await startTestGateway(t);
  for (const bytes of [frame('ping', 0, 0, Buffer.alloc(8)), frame('settings', 0, 0)]) {
    const connection = new FrameConnection(gateway.https, gateway.ca);
    await flood(connection, 20_000, () => bytes);
    t.ok(wasToldOrCutOff(connection), `GOAWAY ${connection.goaway() ?? 'not read'}`);
  }
  t.equal(await refusedConnections(gateway, 'http2_flood'), 2);
});

// CVE-2024-27983 and its kin: a header that never ends is held in memory, and looks like no request to anybody.
t.test('a header of CONTINUATION frames without an end is cut off', async (t) => {
  const gateway = await startTestGateway(t);
  for (const payload of [Buffer.alloc(0), headerBlock([['x', 'y'.repeat(1000)]])]) {
    const connection = new FrameConnection(gateway.https, gateway.ca);
    connection.send(frame('headers', endStream, 1, headerBlock(requestFields('GET', '/v1/transactions'))));
    const sent = await flood(connection, 5_000, () => frame('continuation', 0, 1, payload));
    t.ok(sent < 5_000, `${sent} frames`);
  }
  t.same(gateway.lines, [], 'and it never was a request');
});

/** The request of a stream, and then what makes the server reset it. */
function led(more: (stream: number) => Buffer): (count: number) => Buffer {
  return (count) => {
    const stream = 1 + 2 * count;
    const fields = requestFields('POST', '/v1/payouts', [key, ['content-length', '1']]);
    return Buffer.concat([headersFrames(stream, 0, fields), more(stream)]);
  };
}

// CVE-2025-8671 (MadeYouReset): rapid reset by the server's own hand, for frames that are wrong. CVE-2019-9514: requests
// that are malformed, each answered by a reset.
t.test('a client that has the server reset its requests is cut off', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const malformed = requestFields('GET', '/v1/transactions', [key, ['connection', 'close']]);
  const floods: readonly ((count: number) => Buffer)[] = [
    led((stream) => frame('windowUpdate', 0, stream, uint32(0))),
    led((stream) => frame('windowUpdate', 0, stream, uint32(0x7fffffff))),
    led((stream) => frame('data', endStream, stream, Buffer.from('more than was announced'))),
    led((stream) => headersFrames(stream, 0, [['x', 'y']])), // trailers that do not end the stream
    (count) => headersFrames(1 + 2 * count, endStream, malformed),
  ];
  for (const bytes of floods) {
    const connection = new FrameConnection(gateway.https, gateway.ca);
    const sent = await flood(connection, 20_000, bytes);
    t.ok(sent < 20_000, `${sent} requests`);
  }
  t.same(upstream.seen, []);
  t.ok(gateway.lines.length < 2_000, `${gateway.lines.length} requests`);
});

// CVE-2019-9513 (priorities) and CVE-2019-9511 (windows): frames that want no answer, of which nghttp2 tells nobody. Each
// costs the gateway a microsecond or three, and the client thirteen bytes.
t.test('a flood of frames that ask for nothing is cut off, and nobody else feels it', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const priority = (count: number): Buffer =>
    frame('priority', 0, 1 + 2 * count, Buffer.concat([uint32(2 * count), Buffer.from([255])]));
  /** A frame of a type that the table does not have: PRIORITY_UPDATE (RFC 9218), or one that nobody knows. */
  const ofType = (type: number, stream: number, payload: Buffer): Buffer => {
    const bytes = frame('data', 0, stream, payload);
    bytes.writeUInt8(type, 3);
    return bytes;
  };
  const frames: readonly ((count: number) => Buffer)[] = [
    priority,
    () => frame('windowUpdate', 0, 0, uint32(1)),
    () => frame('windowUpdate', 0, 1, uint32(1)),
    () => ofType(0x10, 0, Buffer.concat([uint32(1), Buffer.from('u=3')])),
    () => ofType(0xee, 0, Buffer.alloc(0)),
    () => ofType(0xee, 1, Buffer.alloc(16_000)),
    // An answer now and then does not pay for them.
    (count) =>
      Buffer.concat([
        frame('windowUpdate', 0, 0, uint32(1)),
        count % 100 === 0 ? frame('ping', 0, 0, Buffer.alloc(8)) : Buffer.alloc(0),
      ]),
  ];
  for (const [index, bytes] of frames.entries()) {
    const connection = new FrameConnection(gateway.https, gateway.ca);
    const other = new FrameConnection(gateway.https, gateway.ca);
    connection.send(headersFrames(1, 0, requestFields('POST', '/v1/payouts', [key])));
    let sent = 0;
    while (!connection.closed && sent < 1_000_000) {
      connection.send(Buffer.concat(Array.from({ length: 500 }, (_, at) => bytes(sent + at))));
      sent += 500;
      await new Promise((resolve) => setImmediate(resolve));
    }
    t.ok(
      wasToldOrCutOff(connection),
      `flood ${index}: GOAWAY ${connection.goaway() ?? 'not read'} after ${sent} frames`,
    );
    other.ask(1, 'GET', '/v1/transactions', [key]);
    await other.until(() => other.isOver(1));
    t.match(other.body(1), '"success":true');
    other.socket.destroy();
  }
  // The nghttp2 of later Nodes cuts off some of them by itself, of which nobody is told.
  const counted = await refusedConnections(gateway, 'http2_flood');
  t.ok(counted > 0 && counted <= frames.length, `${counted} were counted`);
});

t.test('a client that acknowledges each frame of its answers and ranks each of its requests is none', async (t) => {
  const upstream = await startUpstream(t);
  // Pieces that are small and come by themselves: no client sends more frames for what it gets.
  upstream.respond = (_request, response) => {
    let pieces = 0;
    const write = (): void => {
      for (let count = 0; count < 50; count += 1) response.write('"a piece"');
      pieces += 50;
      if (pieces < 500) setTimeout(write, 5);
      else response.end();
    };
    write();
  };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const connection = new FrameConnection(gateway.https, gateway.ca);
  let acknowledged = 0;
  connection.socket.on('data', () => {
    const data = connection.of('data').slice(acknowledged);
    acknowledged += data.length;
    for (const { stream, payload } of data) {
      const size = uint32(Math.max(1, payload.length));
      connection.send(frame('windowUpdate', 0, 0, size), frame('windowUpdate', 0, stream, size));
    }
  });
  for (let count = 0; count < 300; count += 1) {
    const stream = 1 + 2 * count;
    connection.send(frame('priority', 0, stream, Buffer.concat([uint32(0), Buffer.from([15])])));
    connection.ask(stream, 'GET', '/v1/transactions', [key]);
    if (count % 50 === 49) await connection.until(() => connection.isOver(stream));
  }
  await connection.until(() =>
    Array.from({ length: 300 }, (_, count) => 1 + 2 * count).every((one) => connection.isOver(one)),
  );
  t.notOk(connection.closed);
  t.equal(connection.goaway(), null);
  t.ok(acknowledged > 1_000, `${acknowledged} frames acknowledged`);
  connection.socket.destroy();
});

t.test('a client that uploads in small frames is none, nor one whose uploads are refused', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const connection = new FrameConnection(gateway.https, gateway.ca);
  for (const [count, more] of [[key], [key], [], [], []].entries()) {
    const stream = 1 + 2 * count;
    connection.send(headersFrames(stream, 0, requestFields('POST', '/v1/payouts', more)));
    const piece = frame('data', 0, stream, Buffer.from('12345'));
    const isReset = (): boolean => connection.frames.some((one) => one.stream === stream && one.type === 'rstStream');
    for (let pieces = 0; pieces < 10_000 && !isReset(); pieces += 500) {
      connection.send(Buffer.concat(Array.from({ length: 500 }, () => piece)));
      await new Promise((resolve) => setImmediate(resolve));
    }
    if (!isReset()) connection.send(frame('data', endStream, stream));
    await connection.until(() => connection.isOver(stream));
  }
  t.equal(connection.goaway(), null);
  connection.socket.destroy();
});

// CVE-2019-9516: names and values of no length are held, though they count no bytes.
t.test('headers of no length are counted too', async (t) => {
  const gateway = await startTestGateway(t);
  const connection = new FrameConnection(gateway.https, gateway.ca);
  const empty = Array.from({ length: 2_000 }, () => ['', ''] as const);
  connection.send(headersFrames(1, endStream, [...requestFields('GET', '/v1/transactions', [key]), ...empty]));
  await connection.until(() => connection.isOver(1) || connection.goaway() !== null);
  t.notMatch(connection.body(1), '"success":true');
  connection.socket.destroy();
});

// CVE-2019-9518: empty frames cost nothing to send and carry nothing.
t.test('a flood of empty DATA frames is cut off', async (t) => {
  const gateway = await startTestGateway(t);
  const connection = new FrameConnection(gateway.https, gateway.ca);
  connection.send(headersFrames(1, 0, requestFields('POST', '/v1/payouts', [key])));
  const sent = await flood(connection, 20_000, () => frame('data', 0, 1));
  t.ok(sent < 20_000, `${sent} frames`);
});

// HPACK bombs: references to one big entry of the dynamic table make a long list of a few bytes.
t.test('a header list that grows when it is decompressed is refused', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const connection = new FrameConnection(gateway.https, gateway.ca);
  const value = Buffer.alloc(4000, 0x61);
  // With incremental indexing: name `x`, and a value of 4,000 bytes; then 62, its index, three thousand times.
  const entry = Buffer.concat([Buffer.from([0x40, 1, 0x78, 0x7f, 0xa1, 0x1e]), value]);
  const block = Buffer.concat([
    headerBlock(requestFields('GET', '/v1/transactions', [key])),
    entry,
    Buffer.alloc(3000, 0xbe),
  ]);
  connection.send(frame('headers', endStream | endHeaders, 1, block));
  await connection.until(() => connection.isOver(1) || connection.goaway() !== null);
  t.equal(connection.reset(1) ?? connection.goaway(), enhanceYourCalm);
  connection.socket.destroy();
  t.same(upstream.seen, []);
});

t.test(
  'of more requests at once than are announced the rest is refused, and a client that knows is closed',
  async (t) => {
    const upstream = await startUpstream(t);
    const held: ServerResponse[] = [];
    upstream.respond = (_request, response) => held.push(response);
    const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
    const connection = new FrameConnection(gateway.https, gateway.ca);
    for (let count = 0; count < 120; count += 1) connection.ask(1 + 2 * count, 'GET', '/v1/transactions', [key]);
    await connection.until(() => connection.of('rstStream').length >= 20);
    while (held.length < 100) await new Promise((resolve) => setImmediate(resolve));
    t.equal(held.length, 100);
    t.ok(
      connection.of('rstStream').every(({ payload }) => payload.readUInt32BE(0) === 7),
      'REFUSED_STREAM',
    );
    for (const response of held.splice(0)) response.end('{}');
    await connection.until(() => connection.isOver(199));
    connection.send(frame('settings', 1, 0)); // from here on it knows the limit
    for (let count = 120; count < 240; count += 1) connection.ask(1 + 2 * count, 'GET', '/v1/transactions', [key]);
    await connection.untilClosed();
    while (gateway.lines.length < 200) await new Promise((resolve) => setImmediate(resolve));
    t.equal(gateway.lines.length, 200, 'each request has its line');
  },
);

// A client that opens its window for nothing and reads nothing would have every answer wait in memory.
t.test('answers that nobody reads wait at the upstream, and are given up in time', async (t) => {
  const upstream = await startUpstream(t);
  const answer = Buffer.alloc(8_000_000, 0x61);
  let answering = 0;
  upstream.respond = (_request, response) => {
    answering += 1;
    response.end(answer);
  };
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { limits: { requestTimeoutSeconds: 2, headersTimeoutSeconds: 2 } },
  });
  const connection = new FrameConnection(gateway.https, gateway.ca, Buffer.concat([Buffer.from([0, 4]), uint32(0)]));
  const before = process.memoryUsage().external;
  for (let count = 0; count < 50; count += 1) connection.ask(1 + 2 * count, 'GET', '/v1/transactions', [key]);
  while (answering < 50) await new Promise((resolve) => setImmediate(resolve));
  const grown = process.memoryUsage().external - before;
  t.ok(grown < 100_000_000, `${grown} bytes for 400,000,000`);
  while (gateway.lines.length < 50) await new Promise((resolve) => setTimeout(resolve, 20));
  t.ok(gateway.lines.every((line) => (line.event as { code: string }).code === 'client_closed'));
  connection.socket.destroy();
});

// What goes on beside it put the time-out of such a stream off, and an answer of the gateway's own had none.
t.test('a refusal that nobody reads is given up in time, whatever else the connection carries', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, {
    upstreamUrl: upstream.url,
    config: { limits: { requestTimeoutSeconds: 1, headersTimeoutSeconds: 1 } },
  });
  const connection = new FrameConnection(gateway.https, gateway.ca, Buffer.concat([Buffer.from([0, 4]), uint32(0)]));
  connection.ask(1, 'GET', '/v1/transactions');
  let stream = 3;
  const beside = setInterval(() => {
    connection.ask(stream, 'GET', '/v1/transactions', [key]);
    stream += 2;
  }, 100);
  await connection.until(() => connection.isOver(1));
  clearInterval(beside);
  t.match(gateway.lines[0], { event: { code: 'key_required' }, http: { response: { status_code: 401 } } });
  connection.socket.destroy();
});
