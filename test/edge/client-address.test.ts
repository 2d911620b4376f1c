import net from 'node:net';
import fc from 'fast-check';
import t from 'tap';
import { isSecure, parseRemoteAddress, resolveClientAddress } from '../../src/policy/client-address.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import { address } from '../policy/fixtures.js';

const trusted = compileIpRanges(['10.0.0.0/8', '192.0.2.1', '2001:db8:ff::/48']);
const noProxies = compileIpRanges([]);

function clientOf(peer: string, forwardedFor: readonly string[], proxies = trusted): string | null {
  return resolveClientAddress(address(peer), forwardedFor, proxies)?.text ?? null;
}

t.test('the client address is the right-most entry that is not a trusted proxy', (t) => {
  const rows: readonly [string, string, readonly string[], string | null][] = [
    ['without a header', '203.0.113.9', [], '203.0.113.9'],
    ['headers of an untrusted peer are ignored', '203.0.113.9', ['198.51.100.1'], '203.0.113.9'],
    ['also if they are malformed', '203.0.113.9', ['garbage', ''], '203.0.113.9'],
    ['a trusted proxy without the header is itself the client', '10.0.0.1', [], '10.0.0.1'],
    ['one entry', '10.0.0.1', ['198.51.100.1'], '198.51.100.1'],
    ['the right-most, not the left-most', '10.0.0.1', ['198.51.100.1, 203.0.113.9'], '203.0.113.9'],
    ['behind further proxies', '10.0.0.1', ['1.1.1.1, 203.0.113.9, 10.9.9.9,192.0.2.1'], '203.0.113.9'],
    ['a trusted address left of the client is ignored', '10.0.0.1', ['10.1.1.1, 203.0.113.9'], '203.0.113.9'],
    ['all trusted: the left-most entry', '10.0.0.1', ['10.0.0.4, 192.0.2.1, 10.0.0.2'], '10.0.0.4'],
    ['several lines form one list, in order', '10.0.0.1', ['1.1.1.1', '203.0.113.9', '10.2.2.2'], '203.0.113.9'],
    ['the last line is read first', '10.0.0.1', ['203.0.113.9, 10.2.2.2', '1.1.1.1'], '1.1.1.1'],
    ['spaces and tabs', '10.0.0.1', [' \t203.0.113.9\t ,  10.0.0.2 '], '203.0.113.9'],
    ['IPv6', '2001:db8:ff::1', ['2001:db8::1, 2001:DB8:FF:0::2'], '2001:db8::1'],
    ['IPv4-mapped is IPv4', '10.0.0.1', ['203.0.113.9, ::ffff:10.0.0.2'], '203.0.113.9'],
    ['IPv4-mapped client', '10.0.0.1', ['::FFFF:203.0.113.9'], '203.0.113.9'],
    [
      'malformed entries left of the client are ignored',
      '10.0.0.1',
      ['<script>, ,unknown, 203.0.113.9'],
      '203.0.113.9',
    ],
  ];
  for (const [name, peer, forwardedFor, client] of rows) t.equal(clientOf(peer, forwardedFor), client, name);
  t.equal(
    clientOf('10.0.0.1', ['203.0.113.9'], noProxies),
    '10.0.0.1',
    'without trusted proxies the header is ignored',
  );
  t.end();
});

const garbage = [
  ...['', ' ', 'unknown', '_hidden', '"203.0.113.9"', 'for=203.0.113.9', 'shop.example', '203.0.113.9:443'],
  ...[
    '[2001:db8::1]',
    '[2001:db8::1]:443',
    'fe80::1%eth0',
    '2001:db8::1%0',
    '203.0.113.09',
    '0313.0.113.9',
    '203.0.113',
  ],
  ...[
    '3405803785',
    '0xcb007109',
    '203.0.113.9/32',
    '203.0.113.256',
    '203.0.113.9 10.0.0.2',
    '203.0.113.9;',
    '２０３.0.113.9',
  ],
];

t.test('an invalid address met on the way from the right leaves the client unknown', (t) => {
  for (const entry of garbage) {
    const texts = [[entry], [`1.1.1.1, ${entry}`], [`1.1.1.1, ${entry}, 10.0.0.2`], ['1.1.1.1', entry, '10.0.0.2']];
    for (const forwardedFor of texts) t.equal(clientOf('10.0.0.1', forwardedFor), null, JSON.stringify(forwardedFor));
    t.equal(
      clientOf('10.0.0.1', [`${entry}, 203.0.113.9`]),
      '203.0.113.9',
      'an invalid entry left of the client address is ignored',
    );
  }
  t.end();
});

t.test('only spaces and tabs are trimmed around an entry: a no-break space makes the entry invalid', (t) => {
  const entries = ['\u00a0203.0.113.9', '203.0.113.9\u00a0', '\u00a0', '\u000b203.0.113.9', '203.0.113.9\ufeff'];
  t.same(
    entries
      .filter((entry) => clientOf('10.0.0.1', [`1.1.1.1, ${entry}`]) !== null)
      .map((entry) => JSON.stringify(entry)),
    [],
  );
  t.end();
});

/**
 * The trusted proxies, for a second implementation of the contract's rule. It uses the parser of Node for addresses and
 * ranges.
 */
const independentlyTrusted = new net.BlockList();
independentlyTrusted.addSubnet('10.0.0.0', 8, 'ipv4');
independentlyTrusted.addAddress('192.0.2.1', 'ipv4');
independentlyTrusted.addSubnet('2001:db8:ff::', 48, 'ipv6');

function independentAddress(text: string): { text: string; trusted: boolean } | null {
  if (net.isIPv4(text)) return { text, trusted: independentlyTrusted.check(text, 'ipv4') };
  if (!net.isIPv6(text) || text.includes('%')) return null;
  const canonical = new URL(`http://[${text}]`).hostname.slice(1, -1);
  const mapped = /^::ffff:([0-9a-f]+):([0-9a-f]+)$/.exec(canonical);
  if (mapped === null) return { text: canonical, trusted: independentlyTrusted.check(canonical, 'ipv6') };
  const [high, low] = [parseInt(mapped[1] ?? '', 16), parseInt(mapped[2] ?? '', 16)];
  return independentAddress([high >> 8, high & 255, low >> 8, low & 255].join('.'));
}

function independentClient(peer: string, lines: readonly string[]): string | null {
  const peerAddress = independentAddress(peer);
  if (!peerAddress?.trusted || lines.length === 0) return peerAddress?.text ?? null;
  const entries = lines.flatMap((line) => line.split(',')).map((entry) => entry.replace(/^[ \t]+|[ \t]+$/g, ''));
  const read = entries.map(independentAddress);
  const stop = read.findLastIndex((entry) => !entry?.trusted);
  return (stop === -1 ? read[0] : read[stop])?.text ?? null;
}

t.test('for any forwarded header the client address matches an independent reading of the contract', (t) => {
  const proxies = ['10.0.0.1', '10.255.0.7', '192.0.2.1', '::ffff:10.0.0.3', '2001:db8:ff::2', '2001:DB8:FF:0:0:0:0:9'];
  const clients = ['203.0.113.9', '192.0.2.2', '11.0.0.1', '::ffff:203.0.113.9', '2001:db8::1', '2001:db8:fe:ffff::1'];
  const entry = fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom(...proxies) },
    { weight: 3, arbitrary: fc.constantFrom(...clients) },
    { weight: 1, arbitrary: fc.constantFrom(...garbage) },
    { weight: 1, arbitrary: fc.ipV6().filter((text) => !/^::[0-9.]+$/.test(text)) },
    { weight: 1, arbitrary: fc.ipV4() },
    { weight: 1, arbitrary: fc.string({ unit: fc.constantFrom('1', '0', '.', ':', 'f', ' ', '%'), maxLength: 12 }) },
  );
  const blank = fc.constantFrom('', '', ' ', '\t', ' \t ');
  const padded = fc.tuple(blank, entry, blank).map((parts) => parts.join(''));
  const lines = fc.array(
    fc.array(padded, { minLength: 1, maxLength: 4 }).map((entries) => entries.join(',')),
    { maxLength: 3 },
  );
  fc.assert(
    fc.property(
      fc.constantFrom(...proxies, ...clients),
      lines,
      (peer, forwardedFor) => clientOf(peer, forwardedFor) === independentClient(peer, forwardedFor),
    ),
    { numRuns: 5000 },
  );
  t.end();
});

t.test('an IPv4-mapped peer of a dual-stack listener is treated as its IPv4 address, also for trust', (t) => {
  const peer = parseRemoteAddress('::ffff:10.0.0.1') ?? address('::');
  t.match(peer, { family: 4, text: '10.0.0.1' });
  t.ok(trusted.contains(peer));
  t.equal(resolveClientAddress(peer, ['203.0.113.9'], trusted)?.text, '203.0.113.9');
  t.ok(isSecure(peer, false, ['https'], trusted));
  t.equal(parseRemoteAddress('::FFFF:a00:1')?.text, '10.0.0.1');
  t.end();
});

t.test('the zone of a link-local peer is not part of its address', (t) => {
  t.equal(parseRemoteAddress('fe80::1%eth0')?.text, 'fe80::1');
  t.equal(parseRemoteAddress('fe80::1')?.text, 'fe80::1');
  t.equal(parseRemoteAddress('127.0.0.1')?.text, '127.0.0.1');
  for (const gone of [undefined, '', '%', '%eth0', '/run/gateway.sock', 'localhost']) {
    t.equal(parseRemoteAddress(gone), null, `not an address: ${String(gone)}`);
  }
  t.end();
});

t.test('a request is secure if its own hop was TLS, or if a trusted proxy sends exactly https', (t) => {
  const rows: readonly [string, boolean, readonly string[], boolean][] = [
    ['203.0.113.9', true, [], true],
    ['203.0.113.9', false, [], false],
    ['203.0.113.9', false, ['https'], false],
    ['203.0.113.9', true, ['http'], true],
    ['203.0.113.9', true, ['https', 'http'], true],
    ['10.0.0.1', true, [], true],
    ['10.0.0.1', false, [], false],
    ['10.0.0.1', false, ['https'], true],
    ['10.0.0.1', true, ['https'], true],
    ['10.0.0.1', true, ['http'], false],
    ['2001:db8:ff::1', false, ['https'], true],
    ...['HTTPS', 'Https', ' https', 'https ', 'https,', 'https, http', 'http, https', 'https,https', '', 'on', 'wss']
      .flatMap((proto) => [false, true].map((overTls) => ({ proto, overTls })))
      .map(({ proto, overTls }): [string, boolean, string[], boolean] => ['10.0.0.1', overTls, [proto], false]),
    ['10.0.0.1', false, ['https', 'https'], false],
    ['10.0.0.1', false, ['https', 'http'], false],
    ['10.0.0.1', true, ['http', 'https'], false],
  ];
  for (const [peer, overTls, proto, secure] of rows) {
    const hop = overTls ? 'over TLS' : 'on a plain line';
    t.equal(isSecure(address(peer), overTls, proto, trusted), secure, `${peer} ${hop} sends ${JSON.stringify(proto)}`);
  }
  t.equal(isSecure(address('10.0.0.1'), false, ['https'], noProxies), false, 'no proxy is trusted by default');
  t.end();
});
