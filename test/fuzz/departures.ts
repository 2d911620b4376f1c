import { once } from 'node:events';
import net from 'node:net';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import tls from 'node:tls';
import { liveKey } from '../edge/harness.js';
import type { GatewayUnderTest } from '../edge/harness.js';
import { serviceBehaviours } from './hasty-service.js';
import type { Random } from './random.js';

const methods = ['GET', 'POST', 'PUT', 'DELETE'];
const protocols = ['HTTP', 'HTTP over TLS'] as const;
const endings = ['end', 'destroy', 'reset'] as const;
/** PROXY protocol headers of a balancer: versions 1 and 2, with a client address and without one (UNKNOWN, LOCAL). */
const proxyHeaders = [
  Buffer.from('PROXY TCP4 203.0.113.9 10.0.0.1 12345 443\r\n'),
  Buffer.from('PROXY UNKNOWN\r\n'),
  Buffer.from('0d0a0d0a000d0a515549540a2111000ccb0071090a000001303901bb', 'hex'),
  Buffer.from('0d0a0d0a000d0a515549540a20000000', 'hex'),
];
/** Body lengths that a request declares. Before the client leaves, it sends the whole body or a part of the body. */
const bodies = [0, 2, 900, 65_536, 65_537, 100_000];

/** A client that sends requests and disconnects. */
export interface Departure {
  readonly protocol: (typeof protocols)[number];
  /** The PROXY protocol header, or the part of it after which the client disconnects; null: no such header. */
  readonly proxyHeader: Buffer | null;
  /** Milliseconds until it disconnects during the TLS handshake; null: it completes the handshake. */
  readonly handshake: number | null;
  readonly parts: readonly Buffer[];
  /** Pauses between two parts and before the end, in milliseconds; null: one turn of the event loop. */
  readonly pauses: readonly (number | null)[];
  readonly ending: (typeof endings)[number];
  readonly reads: boolean;
}

/** Generates a client that disconnects after complete or partial requests, before, during or after the responses. */
export function departure(random: Random): Departure {
  const protocol = random.pick(protocols);
  const parts = Array.from({ length: 1 + random.below(3) }, () => http1Request(random, protocol === 'HTTP')).flat();
  const pauses = parts.map(() => (random.oneIn(2) ? null : random.below(6)));
  const whole = {
    protocol,
    proxyHeader: random.oneIn(2) ? random.pick(proxyHeaders) : null,
    handshake: null,
    parts,
    pauses,
    ending: random.pick(endings),
    reads: !random.oneIn(4),
  };
  const silent = { ...whole, parts: [], pauses: [] };
  if (random.oneIn(10)) return { ...silent, handshake: random.below(4) };
  const header = whole.proxyHeader;
  if (header === null || !random.oneIn(10)) return whole;
  return { ...silent, proxyHeader: header.subarray(0, random.below(header.length)) };
}

function http1Request(random: Random, isPlain: boolean): Buffer[] {
  const { method, key, behaviour, declared, sent } = request(random);
  const isChunked = declared > 0 && random.oneIn(3);
  const framing = isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${declared}`;
  const head = [
    `${method} /v1/dev/customers/1 HTTP/1.1`,
    'Host: localhost',
    `x-api-key: ${key}`,
    `x-answer: ${behaviour}`,
    ...(isPlain ? ['x-forwarded-proto: https'] : []),
    ...(declared > 0 ? [framing] : []),
    ...(random.oneIn(6) ? ['Expect: 100-continue'] : []),
    ...(random.oneIn(4) ? ['Connection: close'] : []),
  ];
  const body = 'a'.repeat(sent);
  const end = sent === declared ? '0\r\n\r\n' : '';
  const text = isChunked ? `${sent === 0 ? '' : `${sent.toString(16)}\r\n${body}\r\n`}${end}` : body;
  const bytes = Buffer.from(`${head.join('\r\n')}\r\n\r\n${text}`);
  const cut = random.below(bytes.length);
  return random.oneIn(2) ? [bytes] : [bytes.subarray(0, cut), bytes.subarray(cut)];
}

interface Asked {
  readonly method: string;
  readonly key: string;
  readonly behaviour: string;
  readonly declared: number;
  readonly sent: number;
}

function request(random: Random): Asked {
  const declared = random.pick(bodies);
  return {
    method: random.pick(methods),
    key: random.oneIn(4) ? 'svc_live_guess' : liveKey,
    behaviour: random.pick(Object.keys(serviceBehaviours)),
    declared,
    sent: random.oneIn(2) ? declared : random.below(declared + 1),
  };
}

/** A client connection and its TCP socket. */
interface Asking {
  readonly tcp: Socket;
  readonly socket: Socket;
}

/**
 * Connects and sends the requests.
 * @param allowHalfOpen whether the client's side stays open after the gateway has closed its side
 */
async function ask(
  gateway: GatewayUnderTest,
  { protocol, proxyHeader, handshake, parts, pauses, reads }: Departure,
  allowHalfOpen: boolean,
): Promise<Asking> {
  const port = protocol === 'HTTP' ? gateway.http : gateway.https;
  const tcp = net.connect({ port, host: '127.0.0.1', allowHalfOpen });
  if (proxyHeader !== null) tcp.write(proxyHeader);
  const socket = protocol === 'HTTP' ? tcp : secured(tcp, gateway.ca);
  for (const one of [tcp, socket]) one.on('error', () => undefined);
  const ready = once(socket, protocol === 'HTTP' ? 'connect' : 'secureConnect').catch(() => undefined);
  const closed = once(tcp, 'close').catch(() => undefined);
  await Promise.race([ready, closed, ...(handshake === null ? [] : [delay(handshake)])]);
  if (reads) socket.resume();
  for (const [index, part] of parts.entries()) {
    socket.write(part);
    const pause = pauses[index] ?? null;
    await (pause === null ? new Promise((resolve) => setImmediate(resolve)) : delay(pause));
  }
  return { tcp, socket };
}

/** Sends the requests and disconnects; resolves when the client's side of the connection is closed. */
export async function depart(gateway: GatewayUnderTest, departure: Departure): Promise<void> {
  const { tcp, socket } = await ask(gateway, departure, false);
  if (departure.ending === 'end') socket.end();
  else if (departure.ending === 'destroy') socket.destroy();
  else tcp.resetAndDestroy();
  // If the gateway leaves the connection open, this loop does not end, and the test reports that a connection hangs.
  while (!tcp.destroyed) {
    socket.resume();
    await delay(5);
  }
}

/** Sends the requests, then stops reading and leaves the connection open; resolves with a function that closes it. */
export async function fallAsleep(gateway: GatewayUnderTest, departure: Departure): Promise<() => void> {
  const { tcp, socket } = await ask(gateway, departure, true);
  socket.pause();
  tcp.pause();
  return () => {
    tcp.destroy();
    socket.destroy();
  };
}

/** TLS on a TCP socket, which the test can still reset. */
function secured(tcp: Socket, ca: string): Socket {
  const between = new Duplex({
    read: () => tcp.resume(),
    write: (bytes: Buffer, _encoding, done) =>
      tcp.write(bytes, () => {
        done();
      }),
    final: (done) => tcp.end(done),
    destroy: (_error, done) => {
      tcp.destroy();
      done(null);
    },
  });
  tcp.on('data', (bytes: Buffer) => between.push(bytes) || tcp.pause());
  tcp.once('end', () => between.push(null)).once('close', () => between.destroy());
  return tls.connect({ socket: between, ca, servername: 'localhost', ALPNProtocols: ['http/1.1'] });
}
