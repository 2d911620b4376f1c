import net from 'node:net';
import type { Socket } from 'node:net';
import tls from 'node:tls';
import fc from 'fast-check';
import t from 'tap';
import { parseProxyHeader } from '../../src/edge/connections/proxy-protocol.js';
import { exchangeBytes, liveKey, parseResponse, requestBytes, startTestGateway, startUpstream } from './harness.js';
import type { GatewayUnderTest } from './harness.js';

const key = ['x-api-key', liveKey] as const;
const signature = Buffer.from('0d0a0d0a000d0a515549540a', 'hex');

/**
 * Returns a PROXY protocol version 2 header.
 * @param family the byte with the address family and the transport protocol
 * @param length the payload length that the header states
 */
function v2(command: number, family: number, payload: Buffer, length = payload.length): Buffer {
  return Buffer.concat([signature, Buffer.from([command, family, length >> 8, length & 255]), payload]);
}

const ipv4Addresses = Buffer.from([203, 0, 113, 9, 10, 0, 0, 1, 0x30, 0x39, 0x01, 0xbb]);
const ipv6Addresses = Buffer.concat([
  Buffer.from('20010db8000000000000000000000007', 'hex'),
  Buffer.from('20010db8000000000000000000000001', 'hex'),
  Buffer.from([0x30, 0x39, 0x01, 0xbb]),
]);
const tlv = Buffer.from([0x04, 0x00, 0x03, 1, 2, 3]);

function read(bytes: Buffer | string): string {
  const header = parseProxyHeader(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
  if (header.kind !== 'header') return header.kind;
  const { source, length } = header;
  return `${source === null ? 'itself' : `${source.address.text} port ${source.port}`} after ${length}`;
}

t.test('a header gives the source of a connection, or LOCAL for the proxy itself', (t) => {
  const rows: readonly [Buffer | string, string][] = [
    ['PROXY TCP4 203.0.113.9 10.0.0.1 12345 443\r\n', '203.0.113.9 port 12345 after 43'],
    ['PROXY TCP4 203.0.113.9 10.0.0.1 0 65535\r\nGET', '203.0.113.9 port 0 after 41'],
    ['PROXY TCP6 2001:DB8:0::7 ::1 1 2\r\n', '2001:db8::7 port 1 after 34'],
    ['PROXY TCP6 ::ffff:203.0.113.9 ::1 1 2\r\n', '203.0.113.9 port 1 after 39'],
    ['PROXY UNKNOWN\r\n', 'itself after 15'],
    ['PROXY UNKNOWN ffff:f garbage 1 2\r\n', 'itself after 34'],
    [v2(0x21, 0x11, ipv4Addresses), '203.0.113.9 port 12345 after 28'],
    [v2(0x21, 0x21, ipv6Addresses), '2001:db8::7 port 12345 after 52'],
    [v2(0x21, 0x11, Buffer.concat([ipv4Addresses, tlv, Buffer.alloc(4000)])), '203.0.113.9 port 12345 after 4034'],
    [v2(0x20, 0x00, Buffer.alloc(0)), 'itself after 16'],
    [v2(0x20, 0x11, ipv4Addresses), 'itself after 28'],
    [v2(0x21, 0x00, tlv), 'itself after 22'],
  ];
  for (const [bytes, expected] of rows) t.equal(read(bytes), expected, JSON.stringify(bytes.toString('latin1')));
  t.end();
});

const malformed: readonly (Buffer | string)[] = [
  'GET / HTTP/1.1\r\n',
  ' PROXY TCP4 203.0.113.9 10.0.0.1 1 2\r\n',
  'proxy TCP4 203.0.113.9 10.0.0.1 1 2\r\n',
  'PROXY  TCP4 203.0.113.9 10.0.0.1 1 2\r\n',
  'PROXY TCP4 203.0.113.9 10.0.0.1 1\r\n',
  'PROXY TCP4 203.0.113.9 10.0.0.1 1 2 3\r\n',
  'PROXY TCP4 203.0.113.9 10.0.0.1 1 2 \r\n',
  'PROXY TCP4 203.0.113.9 10.0.0.1 1 65536\r\n',
  'PROXY TCP4 203.0.113.9 10.0.0.1 01 2\r\n',
  'PROXY TCP4 203.0.113.9 10.0.0.1 -1 2\r\n',
  'PROXY TCP4 203.0.113.09 10.0.0.1 1 2\r\n',
  'PROXY TCP4 203.0.113 10.0.0.1 1 2\r\n',
  'PROXY TCP4 2001:db8::7 ::1 1 2\r\n',
  'PROXY TCP6 203.0.113.9 10.0.0.1 1 2\r\n',
  'PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n',
  'PROXY TCP4 203.0.113.9 nowhere 1 2\r\n',
  'PROXY UDP4 203.0.113.9 10.0.0.1 1 2\r\n',
  'PROXY\r\n',
  'PROXY \r\n',
  'PROXY TCP4 203.0.113.9 10.0.0.1 1 2\n',
  `PROXY UNKNOWN ${'x'.repeat(200)}\r\n`,
  `PROXY ${'x'.repeat(200)}`,
  '\r\n\r\n\0\r\nQUIX\n',
  Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01]),
  v2(0x22, 0x11, ipv4Addresses),
  v2(0x11, 0x11, ipv4Addresses),
  v2(0x21, 0x12, ipv4Addresses),
  v2(0x21, 0x31, Buffer.alloc(216)),
  v2(0x21, 0x10, ipv4Addresses),
  v2(0x21, 0x11, ipv4Addresses.subarray(1)),
  v2(0x21, 0x21, ipv4Addresses),
  v2(0x21, 0x11, Buffer.alloc(0), 65_535),
  v2(0x20, 0x00, Buffer.alloc(0), 4_097),
];

t.test('invalid bytes are refused as early as they can be recognized', (t) => {
  for (const bytes of malformed) {
    const padded = typeof bytes === 'string' ? `${bytes}${'z'.repeat(200)}` : Buffer.concat([bytes, Buffer.alloc(200)]);
    t.equal(read(padded), 'invalid', JSON.stringify(bytes.toString('latin1').slice(0, 60)));
  }
  t.end();
});

t.test('the result depends on the bytes and not on packet boundaries, and parsing never throws', (t) => {
  const headers = fc.oneof(
    fc.constantFrom(
      Buffer.from('PROXY TCP4 203.0.113.9 10.0.0.1 12345 443\r\n'),
      Buffer.from('PROXY UNKNOWN\r\n'),
      v2(0x21, 0x21, Buffer.concat([ipv6Addresses, tlv])),
      v2(0x20, 0x00, Buffer.alloc(0)),
      ...malformed.map((one) => Buffer.from(one as string, 'latin1')),
    ),
    fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.concat([signature, bytes])),
    fc.string({ maxLength: 120 }).map((text) => Buffer.from(`PROXY ${text}`, 'latin1')),
    fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes)),
  );
  fc.assert(
    fc.property(headers, fc.uint8Array({ maxLength: 200 }), (header, rest) => {
      const bytes = Buffer.concat([header, rest]);
      const whole = parseProxyHeader(bytes);
      for (let length = 0; length <= bytes.length; length += 1) {
        const part = parseProxyHeader(bytes.subarray(0, length));
        if (part.kind === 'incomplete') continue;
        return JSON.stringify(part, bigints) === JSON.stringify(whole, bigints);
      }
      return whole.kind === 'incomplete';
    }),
    { numRuns: 2000 },
  );
  t.end();
});

function bigints(_name: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value;
}

const config = {
  proxyProtocol: true,
  trustedProxies: ['127.0.0.1', '10.0.0.0/8'],
  limits: { headersTimeoutSeconds: 2 },
};
const v1 = (source: string): Buffer => Buffer.from(`PROXY TCP4 ${source} 10.0.0.1 12345 443\r\n`);

/** Sends a request over TLS, on a connection that begins with a PROXY protocol header. Returns the response. */
async function askBehind(
  gateway: GatewayUnderTest,
  header: Buffer,
  headers: readonly (readonly [string, string])[],
  path = '/v1/transactions',
) {
  const socket = tls.connect({ ca: gateway.ca, servername: 'localhost', socket: await behind(gateway.https, header) });
  return parseResponse(await exchangeBytes(socket, requestBytes({ path, headers: [key, ...headers] })));
}

async function behind(port: number, header: Buffer): Promise<Socket> {
  const raw = net.connect(port, '127.0.0.1');
  raw.on('error', () => undefined);
  await new Promise((resolve) => raw.once('connect', resolve));
  raw.write(header);
  return raw;
}

t.test('behind a load balancer the client address comes from the header, over TLS and plain HTTP', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, config });
  const rows: readonly [string, Buffer, readonly (readonly [string, string])[], string, string?][] = [
    ['version 1', v1('203.0.113.9'), [], '203.0.113.9'],
    ['version 2', v2(0x21, 0x11, Buffer.concat([ipv4Addresses, tlv])), [], '203.0.113.9'],
    ['version 2, IPv6', v2(0x21, 0x21, ipv6Addresses), [], '2001:db8::7'],
    ['X-Forwarded-For of a client is ignored', v1('203.0.113.9'), [['x-forwarded-for', '198.51.100.1']], '203.0.113.9'],
    [
      ...(['X-Forwarded-For of a trusted proxy', v1('10.1.1.1')] as const),
      ...([[['x-forwarded-for', '198.51.100.1']], '198.51.100.1', 'x-forwarded-for'] as const),
    ],
    ['a LOCAL header of the load balancer', v2(0x20, 0x00, Buffer.alloc(0)), [], '127.0.0.1', 'peer'],
  ];
  for (const [name, header, headers, client, source = 'proxy-protocol'] of rows) {
    gateway.lines.length = 0;
    t.equal((await askBehind(gateway, header, headers)).status, 200, name);
    t.match(gateway.lines, [{ client: { ip: client } }], name);
    t.equal(upstream.seen.at(-1)?.headers['x-forwarded-for'], client, name);
    const whoami = (await askBehind(gateway, header, headers, '/v1/whoami')).body;
    t.match(JSON.parse(whoami), { data: { client: { address: client, source } } }, name);
  }
  gateway.lines.length = 0;
  const bytes = Buffer.concat([v1('203.0.113.9'), Buffer.from(requestBytes({ headers: [key] }))]);
  const plain = net.connect(gateway.http, '127.0.0.1');
  t.match(await exchangeBytes(plain, bytes), 'must use HTTPS', 'the request may arrive in the packet of the header');
  t.match(gateway.lines, [{ source: { ip: '203.0.113.9' }, event: { code: 'https_required' } }]);
  t.same(gateway.internalErrors, []);
});

/**
 * Sends these packets one after the other on a new connection, and returns all bytes that it receives until it closes.
 * @param end whether the client half-closes the connection after the last packet
 */
async function responseTo(port: number, packets: readonly Buffer[], end = false): Promise<Buffer> {
  const socket = net.connect({ port, host: '127.0.0.1', noDelay: true });
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.on('error', () => undefined);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  for (const packet of packets) {
    await new Promise((resolve) => socket.write(packet, resolve));
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (end) socket.end();
  await closed;
  return Buffer.concat(chunks);
}

t.test('the request is the same for any packet boundaries in the header and the bytes after it', async (t) => {
  const gateway = await startTestGateway(t, { config });
  const bytes = Buffer.concat([v1('203.0.113.9'), Buffer.from(requestBytes({ headers: [key] }))]);
  for (const cut of [1, 7, 12, 41, 42, 43, 44, 50, bytes.length]) {
    const packets: Buffer[] = [];
    for (let at = 0; at < bytes.length; at += cut) packets.push(bytes.subarray(at, at + cut));
    gateway.lines.length = 0;
    t.match((await responseTo(gateway.http, packets)).toString(), 'must use HTTPS', `packets of ${cut}`);
    t.match(gateway.lines, [{ source: { ip: '203.0.113.9', port: 12345 } }]);
    t.equal(gateway.lines.length, 1);
  }
});

t.test('a connection without a valid header, or from an untrusted peer, is closed without a response', async (t) => {
  const gateway = await startTestGateway(t, { config });
  const request = Buffer.from(requestBytes({ headers: [key] }));
  for (const port of [gateway.http, gateway.https]) {
    t.same(await responseTo(port, [request]), Buffer.alloc(0), 'missing');
    t.same(await responseTo(port, [Buffer.from('PROXY TCP4 nobody\r\n'), request]), Buffer.alloc(0), 'bad');
    t.same(await responseTo(port, [v2(0x21, 0x11, Buffer.alloc(0), 65_535)]), Buffer.alloc(0), 'over the length limit');
    t.same(await responseTo(port, [Buffer.from('PROXY TCP4 203.0.')]), Buffer.alloc(0), 'over the time limit');
    t.same(await responseTo(port, [Buffer.from('PROXY TCP4')], true), Buffer.alloc(0), 'truncated');
    t.same(await responseTo(port, [], true), Buffer.alloc(0), 'a port probe');
  }
  const metrics = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  t.match(metrics, /gateway_connections_refused_total\{reason="proxy_header"\} 10\n/);
  t.same(gateway.lines, []);

  const elsewhere = await startTestGateway(t, { config: { ...config, trustedProxies: ['192.0.2.1'] } });
  for (const port of [elsewhere.http, elsewhere.https]) {
    t.same(await responseTo(port, [v1('203.0.113.9'), request]), Buffer.alloc(0));
  }
  const counted = await (await fetch(`http://127.0.0.1:${elsewhere.management}/metrics`)).text();
  t.match(counted, /gateway_connections_refused_total\{reason="proxy_untrusted"\} 2\n/);
});
