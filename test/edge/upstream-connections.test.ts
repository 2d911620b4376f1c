import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import { PassThrough, Readable } from 'node:stream';
import { setTimeout } from 'node:timers/promises';
import tls from 'node:tls';
import t from 'tap';
import { createSelfSigned } from '../../src/cli/dev/self-signed.js';
import type { UpstreamResponse } from '../../src/edge/http1/response-reader.js';
import { BodyBuffers } from '../../src/edge/proxy/body-buffers.js';
import type { UpstreamOptions, UpstreamRequest } from '../../src/edge/proxy/upstream-request.js';
import { Upstream } from '../../src/edge/proxy/upstream.js';
import { Cancellation } from '../../src/edge/request/exchange.js';
import { GatewayError } from '../../src/edge/request/errors.js';
import { stallProcess } from '../stall-process.js';
import { startBareUpstream, type Teardown } from './harness.js';

// Ends a test after this time, in milliseconds, if it waits for a condition that is never met.
const hang = { timeout: 60_000 };
const ok = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const large = 4_000_000;

/** A service on bare sockets. */
interface Service {
  readonly url: string;
  /** Its connections in order of arrival, including closed ones. */
  readonly sockets: Socket[];
}

async function startService(t: Teardown, onConnection: (socket: Socket, count: number) => void): Promise<Service> {
  const sockets: Socket[] = [];
  const url = await startBareUpstream(t, (socket) => {
    socket.on('error', () => undefined);
    onConnection(socket, sockets.push(socket));
  });
  return { url, sockets };
}

/**
 * Returns a handler for the connections of a service. It sends `response` for each piece of data, so each request must
 * arrive in one piece.
 */
function respondingWith(response = ok): (socket: Socket) => void {
  return (socket) => socket.on('data', () => socket.write(response, 'latin1'));
}

function open(t: Teardown, url: string, options: Partial<UpstreamOptions> = {}): Upstream {
  const defaults = {
    ...{ name: 'service', timeoutSeconds: 60, maxInFlight: 8, ca: null, maxBodyBytes: 2 * large },
    ...{ boundIdle: 8, readsBodies: false, restMilliseconds: 0, onUnsolicited: () => undefined },
    ...{ minBodyBytesPerSecond: 1, buffers: new BodyBuffers(2 * large) },
  };
  const upstream = new Upstream({ ...defaults, url, ...options });
  t.teardown(() => upstream.close(0));
  return upstream;
}

/**
 * Sends a request, and resolves with its response at the end of the event loop turn. A real client cannot send its next
 * request before that either.
 */
function send(upstream: Upstream, request: Partial<UpstreamRequest> = {}): Promise<UpstreamResponse> {
  return new Promise((resolve, failed) => {
    const onResponse = (response: UpstreamResponse): void => {
      setImmediate(resolve, response);
    };
    const defaults = { method: 'GET', target: '/', headers: [], body: null, bodyBytes: null, onBody: () => undefined };
    const whole = {
      bodyAtHand: () => null,
      bodyIsWhole: () => true,
      cancellation: new Cancellation(),
      onStart: () => undefined,
      onUploadEnd: () => undefined,
      onHeaders: () => undefined,
    };
    upstream.send({ merchantId: 'm_1', ...defaults, ...whole, onResponse, failed, ...request });
  });
}

/** The body of the response to a request, or the code of its failure. */
async function ask(upstream: Upstream, request: Partial<UpstreamRequest> = {}): Promise<string> {
  try {
    const { body } = await send(upstream, request);
    return typeof body === 'string' ? body : (await body.toArray()).join('');
  } catch (error) {
    return error instanceof GatewayError ? error.code : String(error);
  }
}

function gone(): GatewayError {
  return new GatewayError('client_closed', 'the client went away');
}

/** Resolves once the condition holds, checked on each turn of the event loop. */
async function until(hasCome: () => boolean): Promise<void> {
  while (!hasCome()) await new Promise((resolve) => setImmediate(resolve));
}

t.test('sequential requests share a connection; concurrent requests each have one', async (t) => {
  const service = await startService(t, respondingWith());
  const upstream = open(t, service.url);
  for (let count = 0; count < 5; count += 1) t.equal(await ask(upstream), 'ok');
  t.equal(service.sockets.length, 1);
  t.same(await Promise.all([ask(upstream), ask(upstream), ask(upstream)]), ['ok', 'ok', 'ok']);
  t.equal(service.sockets.length, 3);
});

t.test('a connection is reused if the service keeps it open longer than a request needs to arrive', async (t) => {
  const cases: readonly (readonly [response: string, connections: number])[] = [
    [ok, 1],
    ...['timeout=3', 'timeout=5, max=9', 'timeout=1000000', 'timeout=99999999999', 'timeout=-1', 'max=1', ''].map(
      (hint) => [ok.replace('\r\n', `\r\nKeep-Alive: ${hint}\r\n`), 1] as const,
    ),
    ...['timeout=0', 'timeout=1', 'timeout=2', 'max=5, timeout=1'].map(
      (hint) => [ok.replace('\r\n', `\r\nKeep-Alive: ${hint}\r\n`), 2] as const,
    ),
    [ok.replace('\r\n', '\r\nConnection: close\r\n'), 2],
    [ok.replace('HTTP/1.1', 'HTTP/1.0'), 2],
    [ok.replace('HTTP/1.1', 'HTTP/1.0').replace('\r\n', '\r\nConnection: keep-alive\r\n'), 1],
    ['HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n', 1],
  ];
  for (const [response, connections] of cases) {
    const service = await startService(t, respondingWith(response));
    const upstream = open(t, service.url);
    t.same([await ask(upstream), await ask(upstream)], ['ok', 'ok']);
    t.equal(service.sockets.length, connections, JSON.stringify(response));
  }
});

t.test('an idle connection is closed before the service closes it', hang, async (t) => {
  const service = await startService(t, respondingWith(ok.replace('\r\n', '\r\nKeep-Alive: timeout=3\r\n')));
  const upstream = open(t, service.url);
  t.equal(await ask(upstream), 'ok');
  const [socket] = service.sockets;
  if (socket !== undefined) await once(socket, 'close');
  t.equal(await ask(upstream), 'ok');
});

t.test('a connection that the service closes right after its response is not reused', async (t) => {
  const service = await startService(t, (socket) => socket.once('data', () => socket.end(ok)));
  const upstream = open(t, service.url);
  // Each request starts in the turn of the previous response, before the end of the connection is read.
  await new Promise<void>((resolve, reject) => {
    const next = (left: number): void => {
      if (left === 0) resolve();
      else void send(upstream, { failed: reject, onResponse: () => { next(left - 1); } }); // prettier-ignore
    };
    next(50);
  });
  t.equal(service.sockets.length, 50);
});

t.test('an idle connection that its service closes or resets is not reused', async (t) => {
  const endings: ((socket: Socket) => unknown)[] = [(socket) => socket.end(), (socket) => socket.resetAndDestroy()];
  for (const end of endings) {
    const service = await startService(t, respondingWith());
    const upstream = open(t, service.url);
    t.equal(await ask(upstream), 'ok');
    const [socket] = service.sockets;
    if (socket !== undefined) {
      end(socket);
      await once(socket, 'close');
    }
    t.equal(await ask(upstream), 'ok');
    t.equal(service.sockets.length, 2);
  }
});

t.test('a service can have an IPv6 address', async (t) => {
  const server = net.createServer(respondingWith()).listen(0, '::1');
  t.teardown(() => server.close());
  await once(server, 'listening');
  const upstream = open(t, `http://[::1]:${(server.address() as AddressInfo).port}`);
  t.equal(await ask(upstream), 'ok');
  await upstream.close(0);
});

t.test('a request is sent once, whatever happens to its connection', async (t) => {
  const endings: ((socket: Socket) => unknown)[] = [
    (socket) => socket.end(),
    (socket) => socket.resetAndDestroy(),
    (socket) => socket.end('HTTP/1.1 200 OK\r\nContent-'),
    (socket) => socket.write('garbage\r\n'),
  ];
  for (const method of ['GET', 'POST']) {
    for (const end of endings) {
      let seen = '';
      const service = await startService(t, (socket) => {
        socket.on('data', (bytes) => {
          seen += bytes.toString('latin1');
          end(socket);
        });
      });
      t.equal(await ask(open(t, service.url), { method }), 'upstream_failed');
      t.equal(seen.split(' HTTP/1.1').length, 2);
      t.equal(service.sockets.length, 1);
    }
  }
});

/**
 * Returns a handler for the connections of a service. It sends `ok` to the first request of a connection. At the second
 * request, it calls `end` to end the connection. It adds the method of each request to `seen`.
 */
function endingAtSecond(end: (socket: Socket) => unknown, seen: string[] = []): (socket: Socket) => void {
  return (socket) => {
    let isFirst = true;
    socket.on('data', (bytes) => {
      seen.push(bytes.toString('latin1').split(' ', 1)[0] ?? '');
      if (isFirst) socket.write(ok);
      else end(socket);
      isFirst = false;
    });
  };
}

const withoutResponse: readonly ((socket: Socket) => unknown)[] = [
  (socket) => socket.end(),
  (socket) => socket.resetAndDestroy(),
];

t.test('a GET or HEAD is retried once, on a new connection, if a reused one ends without a response', async (t) => {
  for (const end of withoutResponse) {
    for (const method of ['GET', 'HEAD']) {
      const seen: string[] = [];
      const service = await startService(t, endingAtSecond(end, seen));
      const upstream = open(t, service.url);
      t.same(await Promise.all([ask(upstream), ask(upstream)]), ['ok', 'ok']);
      t.equal(upstream.repeated, 0);
      t.equal((await send(upstream, { method })).statusCode, 200);
      t.same(seen, ['GET', 'GET', method, method]);
      t.equal(service.sockets.length, 3, 'the other idle connection is not used');
      t.equal(upstream.repeated, 1);
      t.equal(upstream.inFlight, 0);
    }
  }
});

t.test('the retry does not use a spare connection, because a stopping service closes this one too', hang, async (t) => {
  for (const end of withoutResponse) {
    for (const endsAtOnce of [true, false]) {
      const sockets: Socket[] = [];
      let requests = 0;
      const service = await startService(t, (socket) => {
        sockets.push(socket);
        socket.on('data', () => {
          requests += 1;
          if (requests === 2) for (const each of endsAtOnce ? sockets : [socket]) end(each);
          else if (requests === 3 && sockets.indexOf(socket) < 2) end(socket);
          else void until(() => sockets.length > 1).then(() => setImmediate(() => socket.write(ok)));
        });
      });
      const upstream = open(t, service.url);
      const cancellation = new Cancellation();
      const both = Promise.all([ask(upstream), ask(upstream, { cancellation })]);
      setImmediate(() => {
        cancellation.cancel(gone()); // the connection for this request is still opened, but carries no request
      });
      t.same(await both, ['ok', 'client_closed']);
      t.equal(await ask(upstream), 'ok');
      t.equal(sockets.length, 3);
      t.equal(upstream.repeated, 1);
    }
  }
});

t.test('a request with side effects, a body or a partial response is not retried', async (t) => {
  const cut = (socket: Socket): unknown => socket.end();
  const body = (): Partial<UpstreamRequest> => ({ body: Readable.from([Buffer.from('{}')]), bodyBytes: 2 });
  const cases: readonly (readonly [Partial<UpstreamRequest>, (socket: Socket) => unknown])[] = [
    ...withoutResponse.flatMap((end) =>
      ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'].map((method) => [{ method }, end] as const),
    ),
    [{ method: 'POST', ...body() }, cut],
    [{ ...body() }, cut],
    [{}, (socket) => socket.end('H')],
    [{}, (socket) => socket.end('HTTP/1.1 103 Early Hints\r\n\r\n')],
    [{}, (socket) => socket.write('garbage\r\n')],
  ];
  for (const [request, end] of cases) {
    const seen: string[] = [];
    const service = await startService(t, endingAtSecond(end, seen));
    const upstream = open(t, service.url);
    t.equal(await ask(upstream), 'ok');
    t.equal(await ask(upstream, request), 'upstream_failed');
    t.equal(seen.length, 2, request.method ?? 'GET');
    t.equal(service.sockets.length, 1);
    t.equal(upstream.repeated, 0);
  }
});

t.test('a retry that gets no response either is a failure', async (t) => {
  for (const end of withoutResponse) {
    const service = await startService(t, (socket, count) => {
      if (count === 1) endingAtSecond(end)(socket);
      else socket.on('data', () => end(socket));
    });
    const upstream = open(t, service.url);
    t.same([await ask(upstream), await ask(upstream)], ['ok', 'upstream_failed']);
    t.equal(service.sockets.length, 2);
    t.equal(upstream.repeated, 1);
    t.equal(upstream.inFlight, 0);
  }
});

t.test(
  'a retry that waits for its connection keeps its deadline, and is cancelled when its client leaves',
  hang,
  async (t) => {
    for (const leaves of [true, false]) {
      const cancellation = new Cancellation();
      const service = await startService(t, (socket, count) => {
        if (count === 1) endingAtSecond((first) => first.end())(socket);
      else if (leaves) socket.on('data', () => { cancellation.cancel(gone()); }); // prettier-ignore
      });
      // Long enough that a busy machine gets the first response and the end of the connection in time.
      const upstream = open(t, service.url, { timeoutSeconds: leaves ? 60 : 4 });
      t.equal(await ask(upstream), 'ok');
      t.equal(await ask(upstream, { cancellation }), leaves ? 'client_closed' : 'upstream_timeout');
      t.equal(upstream.repeated, 1);
      t.equal(upstream.inFlight, 0);
    }
  },
);

t.test(
  'of many requests that lose their connections at once, each is retried once, with no spare permit',
  hang,
  async (t) => {
    const service = await startService(
      t,
      endingAtSecond((socket) => socket.end()),
    );
    const upstream = open(t, service.url, { maxInFlight: 4 });
    const four = [1, 2, 3, 4];
    t.same(await Promise.all(four.map(() => ask(upstream))), ['ok', 'ok', 'ok', 'ok']);
    t.same(await Promise.all(four.map(() => ask(upstream))), ['ok', 'ok', 'ok', 'ok']);
    t.equal(service.sockets.length, 8);
    t.equal(upstream.repeated, 4);
  },
);

t.test('large uploads share a connection and leave no listener on it', async (t) => {
  const warnings: Error[] = [];
  const note = (warning: Error): void => void warnings.push(warning);
  process.on('warning', note);
  t.teardown(() => process.off('warning', note));
  const size = 80_000; // more than the 65,536 bytes that the gateway buffers before it sends a request
  for (const bodyBytes of [size, null]) {
    const service = await startService(t, (socket) => {
      let received = '';
      socket.setEncoding('latin1').on('data', (bytes: string) => {
        received += bytes;
        if (received.split('x').length - 1 < size || (bodyBytes === null && !received.endsWith('0\r\n\r\n'))) return;
        received = '';
        socket.write(ok);
      });
    });
    const upstream = open(t, service.url);
    for (let count = 0; count < 15; count += 1) {
      const body = Readable.from(Array.from({ length: 4 }, () => Buffer.alloc(size / 4, 'x')));
      t.equal(await ask(upstream, { method: 'POST', target: '/u', body, bodyBytes }), 'ok');
    }
    t.equal(service.sockets.length, 1);
  }
  t.same(warnings, []);
});

t.test('a response that precedes the end of its request ends the connection and the upload', hang, async (t) => {
  for (const bodyBytes of [2 * large, null]) {
    const service = await startService(t, (socket) => socket.once('data', () => socket.write(ok)));
    const upstream = open(t, service.url);
    const body = new PassThrough();
    body.write(Buffer.alloc(70_000));
    t.equal(await ask(upstream, { method: 'POST', body, bodyBytes }), 'ok');
    t.equal(await ask(upstream), 'ok');
    t.equal(service.sockets.length, 2);
    const [socket] = service.sockets;
    if (socket?.destroyed === false) await once(socket, 'close');
    await until(() => body.listenerCount('data') === 0);
  }
});

t.test('a body shorter or longer than its Content-Length is never complete, nor read as a request', async (t) => {
  const size = 80_000;
  for (const [bodyBytes, sent] of [
    [size, [Buffer.alloc(size), Buffer.from('GET /forged HTTP/1.1\r\n\r\n')]],
    [size, [Buffer.alloc(size - 1)]],
  ] as const) {
    let seen = '';
    const service = await startService(t, (socket) => {
      socket.on('data', (bytes) => {
        if (seen === '') seen += bytes.toString('latin1');
      });
    });
    const upstream = open(t, service.url);
    t.equal(await ask(upstream, { method: 'POST', body: Readable.from(sent), bodyBytes }), 'upstream_failed');
    t.notMatch(seen, 'forged');
    await until(() => service.sockets[0]?.destroyed === true);
  }
});

t.test(
  'a service that half-closes and stops reading retains neither the connection nor the upload',
  hang,
  async (t) => {
    const server = net.createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
      socket.on('error', () => undefined).end();
    });
    t.teardown(() => server.close());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const upstream = open(t, `http://127.0.0.1:${(server.address() as AddressInfo).port}`, {
      maxBodyBytes: 20 * large,
    });
    const body = Readable.from(Array.from({ length: 10 }, () => Buffer.alloc(large)));
    t.equal(await ask(upstream, { method: 'POST', body, bodyBytes: null }), 'upstream_failed');
    await upstream.close(60_000);
    t.pass('no connection remains');
  },
);

t.test('backpressure: a client that pauses stops a large response, then gets all of it', async (t) => {
  const size = 16 * large;
  let taken = 0;
  const service = await startService(t, (socket) => {
    socket.once('data', () => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
      const write = (): void => {
        if (taken === size) return;
        taken += large;
        socket.write(Buffer.alloc(large), write);
      };
      write();
    });
  });
  const { body } = await send(open(t, service.url));
  if (!(body instanceof Readable)) throw new Error('the body must not be complete');
  await once(body, 'readable');
  for (let [before, still] = [-1, 0]; still < 1_000; still = taken === before ? still + 1 : 0) {
    before = taken;
    await new Promise((resolve) => setImmediate(resolve));
  }
  t.ok(taken < size / 2, `${taken} of ${size} bytes were read from the service`);
  let received = 0;
  for await (const bytes of body) received += (bytes as string).length;
  t.equal(received, size);
});

/** A service that completes no TLS handshake. Once `goOn` is set, it completes the handshakes of new connections. */
async function startStandstill(t: Teardown): Promise<Service & { readonly ca: Buffer; goOn: boolean }> {
  const { cert, key } = await createSelfSigned(new Date());
  const server = tls.createServer({ cert, key }, respondingWith()).on('tlsClientError', () => undefined);
  const service = await startService(t, (socket) => {
    if (standstill.goOn) server.emit('connection', socket);
  });
  const url = service.url.replace('http://127.0.0.1', 'https://localhost');
  const standstill = { ...service, url, ca: Buffer.from(cert), goOn: false };
  return standstill;
}

/**
 * Sends a request to a service that completes no TLS handshake, and cancels it while the connection is being opened.
 * @returns the service, the upstream, and the outcome of the request (`left`)
 */
async function leaveWhileConnecting(t: Teardown) {
  const service = await startStandstill(t);
  const upstream = open(t, service.url, { ca: service.ca });
  const cancellation = new Cancellation();
  const left = ask(upstream, { cancellation });
  await until(() => service.sockets.length === 1);
  cancellation.cancel(gone());
  return { service, upstream, left };
}

t.test('a failed connect whose client has left fails no other request', hang, async (t) => {
  const { service, upstream, left } = await leaveWhileConnecting(t);
  const next = ask(upstream);
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  service.goOn = true;
  service.sockets[0]?.resetAndDestroy();
  t.same(await Promise.all([left, next]), ['client_closed', 'ok']);
  t.equal(service.sockets.length, 2);
});

t.test(
  'a stalled connect whose client has left delays no other request: new requests connect again',
  hang,
  async (t) => {
    const { service, upstream, left } = await leaveWhileConnecting(t);
    t.equal(await left, 'client_closed');
    service.goOn = true; // for new connections only
    const early = ask(upstream);
    await setTimeout(1_100);
    t.equal(service.sockets.length, 1, 'the stalled connect may still complete');
    t.equal(await ask(upstream), 'ok');
    t.equal(await early, 'ok');
    t.equal(service.sockets.length, 3);
  },
);

t.test('while a service accepts no connections, clients that come and go leave nothing behind', hang, async (t) => {
  const service = await startStandstill(t);
  const maxInFlight = 4;
  const upstream = open(t, service.url, { ca: service.ca, maxInFlight });
  for (let round = 0; round < 20; round += 1) {
    const leaving = Array.from({ length: maxInFlight }, () => {
      const cancellation = new Cancellation();
      const body = new PassThrough();
      body.write(Buffer.alloc(70_000));
      return { cancellation, body, asked: ask(upstream, { method: 'POST', body, cancellation }) };
    });
    if (round === 0) await until(() => service.sockets.length === maxInFlight);
    else await new Promise((resolve) => setImmediate(resolve));
    for (const { cancellation } of leaving) cancellation.cancel(gone());
    for (const { asked, body } of leaving) {
      t.equal(await asked, 'client_closed');
      await until(() => body.listenerCount('data') === 0);
    }
  }
  t.equal(service.sockets.length, maxInFlight, 'no more connections than permits');
  service.goOn = true;
  for (const socket of service.sockets.slice()) socket.destroy();
  const asked = Array.from({ length: maxInFlight + 1 }, () => ask(upstream));
  t.same((await Promise.all(asked)).sort(), ['ok', 'ok', 'ok', 'ok', 'upstream_busy'], 'every permit is free again');
});

t.test('a response that arrives while the process stalls is not lost to the timeout', hang, async (t) => {
  const service = await startService(t, (socket) => {
    socket.on('data', () => {
      socket.write(ok);
      stallProcess(3_500); // after a stall, Node runs due timers before it reads the response
    });
  });
  const upstream = open(t, service.url, { timeoutSeconds: 2 });
  const payout = Buffer.from('{"amount":1250}');
  t.equal(await ask(upstream, { method: 'POST', body: new PassThrough(), bodyAtHand: () => payout }), 'ok');
});

t.test('bytes of an upload that arrive while the process stalls restart its timeout', hang, async (t) => {
  const client = await startService(t, (socket) => socket.write(Buffer.alloc(70_000)));
  const service = await startService(t, (socket) => {
    let received = '';
    socket.once('data', () => {
      client.sockets[0]?.end('the rest');
      stallProcess(3_500);
    });
    socket.on('data', (bytes) => {
      received += bytes.toString('latin1');
      if (received.endsWith('\r\n0\r\n\r\n')) socket.write(ok);
    });
  });
  const upstream = open(t, service.url, { timeoutSeconds: 2 });
  const body = net.connect(Number(new URL(client.url).port), '127.0.0.1');
  t.teardown(() => body.destroy());
  t.equal(await ask(upstream, { method: 'POST', body }), 'ok');
});

t.test('bytes of an upload that arrive while the process stalls count for its rate', hang, async (t) => {
  const client = await startService(t, (socket) => socket.write(Buffer.alloc(70_000)));
  const service = await startService(t, (socket) => {
    let received = '';
    socket.on('data', (bytes) => {
      received += bytes.toString('latin1');
      if (received.endsWith('\r\n0\r\n\r\n')) socket.write(ok);
    });
  });
  const upstream = open(t, service.url, { minBodyBytesPerSecond: 2_000 });
  const body = net.connect(Number(new URL(client.url).port), '127.0.0.1');
  t.teardown(() => body.destroy());
  const asked = ask(upstream, { method: 'POST', body });
  await until(() => service.sockets.length === 1);
  // The gateway measures the rate over five ticks of a timer. A busy machine delays them like the ticks of this timer.
  await new Promise<void>((resolve) => {
    let ticks = 0;
    const timer = setInterval(() => {
      ticks += 1;
      if (ticks < 4) return;
      clearInterval(timer);
      resolve();
    }, 1_000);
  });
  await new Promise((resolve) => setImmediate(resolve)); // so that the timers run right after the stall
  client.sockets[0]?.end(Buffer.alloc(20_000));
  stallProcess(1_500);
  t.equal(await asked, 'ok');
});

t.test('closing lets a request finish, and cuts it off at the timeout', hang, async (t) => {
  for (const part of ['', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no']) {
    for (const ends of [true, false]) {
      const service = await startService(t, (socket) => socket.once('data', () => socket.write(part)));
      const upstream = open(t, service.url);
      const asked = ask(upstream);
      await until(() => service.sockets.some((socket) => socket.bytesRead > 0 && socket.bytesWritten === part.length));
      const closed = upstream.close(ends ? 60_000 : 0);
      if (ends) service.sockets[0]?.write(ok.slice(part.length));
      t.match(await asked, ends ? 'ok' : /gateway is closing|upstream_failed/);
      await closed;
      t.equal(await ask(upstream), 'upstream_failed', 'a pipelined request is not sent');
    }
  }
});

t.test('closing waits no longer for a pending connect than for a response', hang, async (t) => {
  const service = await startStandstill(t);
  const upstream = open(t, service.url, { ca: service.ca, timeoutSeconds: 600 });
  const asked = ask(upstream);
  await until(() => service.sockets.length === 1);
  await upstream.close(1);
  t.equal(await asked, 'upstream_failed');
  const [socket] = service.sockets;
  if (socket === undefined) return;
  tls.createServer(await createSelfSigned(new Date())).emit('connection', socket);
  await once(socket, 'close');
});

t.test('a service over TLS is verified, and its sessions are resumed', async (t) => {
  const { cert, key } = await createSelfSigned(new Date());
  const resumed: boolean[] = [];
  const server = tls.createServer({ cert, key }, (socket) => {
    resumed.push(socket.isSessionReused());
    socket.on('data', () => socket.end(ok.replace('\r\n', '\r\nConnection: close\r\n')));
  });
  server.on('tlsClientError', () => undefined).listen(0, '127.0.0.1');
  t.teardown(() => server.close());
  await once(server, 'listening');
  const url = `https://localhost:${(server.address() as AddressInfo).port}`;
  const upstream = open(t, url, { ca: Buffer.from(cert) });
  t.same([await ask(upstream), await ask(upstream)], ['ok', 'ok']);
  t.same(resumed, [false, true]);
  t.equal(await ask(open(t, url)), 'upstream_failed', 'an untrusted CA');
});
