import fc from 'fast-check';
import t from 'tap';
import { BadKeyThrottle } from '../../src/edge/auth/bad-key-throttle.js';
import { sourceOf, throttledSource } from '../../src/policy/client-address.js';
import { denyCredential } from '../../src/policy/decision-table.js';
import { parseIpAddress } from '../../src/policy/ip-address.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import { acceptedFacts, acceptingCredential, address } from './fixtures.js';

/** The text of the IPv4 address embedded in an address; null without one. */
function embeddedIn(text: string): string | null {
  const parsed = address(text);
  return parsed.family === 6 ? (parsed.embedded?.text ?? null) : null;
}

t.test('NAT64, 6to4 and Teredo addresses embed the IPv4 address of the client', (t) => {
  for (const [text, embedded] of [
    ['64:ff9b::203.0.113.7', '203.0.113.7'], // RFC 6052 2.4
    ['64:FF9B:0:0:0:0:CB00:7107', '203.0.113.7'],
    ['64:ff9b::', '0.0.0.0'],
    ['2002:cb00:7107::1', '203.0.113.7'], // RFC 3056 2
    ['2002:cb00:7107:ffff:ffff:ffff:ffff:ffff', '203.0.113.7'],
    ['2001:0:4136:e378:8000:63bf:3fff:fdd2', '192.0.2.45'], // RFC 4380 4; the server is 65.54.227.120
    ['2001::', '255.255.255.255'],
  ] as const) {
    t.equal(embeddedIn(text), embedded, text);
  }
  t.match(address('2002:cb00:7107::1'), { text: '2002:cb00:7107::1', embedded: { family: 4, value: 0xcb007107 } });
  t.end();
});

t.test('no other address embeds an IPv4 address', (t) => {
  for (const text of [
    ...['203.0.113.7', '::ffff:203.0.113.7', '::203.0.113.7', '2001:db8::cb00:7107', '2001:1::cb00:7107'],
    ...['64:ff9b:0:0:0:1:cb00:7107', '64:ff9b:1::cb00:7107', '64:ff9b:1:cb00:71:700::', '64:ff9c::203.0.113.7'],
    ...['65:ff9b::203.0.113.7', '2003:cb00:7107::1', 'fe80::5efe:203.0.113.7', '::', '::1'],
  ]) {
    t.equal(embeddedIn(text), null, text);
  }
  t.end();
});

t.test('a client counts by its embedded IPv4 address, so it uses up no limit of others behind its translator', (t) => {
  const limits = { badKeys: 1, totalBadKeys: 100, windowSeconds: 60, pauseSeconds: 60, maxSources: 100 };
  for (const [one, other] of [
    ['64:ff9b::203.0.113.7', '64:ff9b::203.0.113.8'],
    ['2001:0:4136:e378:8000:63bf:3fff:fdd2', '2001:0:4136:e378:8000:63bf:3fff:fdd1'], // the same Teredo server
  ] as const) {
    const throttle = new BadKeyThrottle({ ...limits, lookupsPerSecond: 1, totalLookupsPerSecond: 1 }, () => 0);
    const deny = (text: string) => () => {
      throttle.denied(sourceOf(address(text)), 'key_unknown');
    };
    deny(one)();
    t.throws(deny(one), { code: 'throttled' });
    t.doesNotThrow(deny(other), other);
    t.equal(sourceOf(address(one)), embeddedIn(one));
  }
  t.equal(sourceOf(address('2002:cb00:7107:1::1')), sourceOf(address('2002:cb00:7107:2::1')), 'the same 6to4 client');
  const proxies = compileIpRanges(['203.0.113.7']);
  t.equal(throttledSource(address('64:ff9b::203.0.113.7'), proxies), '203.0.113.7', 'not a trusted proxy');
  t.end();
});

const ipv4 = fc.integer({ min: 0, max: 0xffffffff });
const bits = (width: bigint): fc.Arbitrary<bigint> => fc.bigInt(0n, (1n << width) - 1n);
const forms = {
  nat64: fc.tuple(ipv4).map(([client]) => ({ client, value: (0x64ff9bn << 96n) | BigInt(client) })),
  sixToFour: fc
    .tuple(ipv4, bits(80n))
    .map(([client, rest]) => ({ client, value: (0x2002n << 112n) | (BigInt(client) << 80n) | rest })),
  teredo: fc
    .tuple(ipv4, bits(64n))
    .map(([client, rest]) => ({ client, value: (0x20010000n << 96n) | (rest << 32n) | BigInt(~client >>> 0) })),
};

function textOf(value: bigint): string {
  return [112n, 96n, 80n, 64n, 48n, 32n, 16n, 0n].map((shift) => ((value >> shift) & 0xffffn).toString(16)).join(':');
}

function isAdmitted(text: string, entry: string): boolean {
  const facts = { ...acceptedFacts('live'), clientAddress: address(text) };
  const credential = { ...acceptingCredential('live'), ipAllowlist: compileIpRanges([entry]) };
  return denyCredential(facts, credential) === null;
}

t.test('a client whose IPv4 address is on an allowlist may call from any address that embeds it', (t) => {
  for (const [form, made] of Object.entries(forms)) {
    fc.assert(
      fc.property(made, ipv4, ({ client, value }, other) => {
        const text = textOf(value);
        const parsed = parseIpAddress(text);
        const dotted = [24, 16, 8, 0].map((shift) => (client >>> shift) & 255).join('.');
        if (parsed?.family !== 6 || parsed.value !== value || parsed.embedded?.text !== dotted) return false;
        if (parsed.embedded.value !== client) return false;
        const elsewhere = textOf(BigInt(other) | (0xffffn << 32n)); // IPv4-mapped
        const isOther = other !== client;
        return (
          isAdmitted(text, dotted) &&
          isAdmitted(text, `${dotted}/24`) &&
          isAdmitted(text, text) &&
          isAdmitted(text, elsewhere) !== isOther &&
          !isAdmitted(text, '2001:db8::/32') &&
          !isAdmitted(dotted, text)
        );
      }),
    );
    t.pass(form);
  }
  t.end();
});

t.test('an IPv6 address similar to these forms embeds nothing', (t) => {
  const known = [0x64ff9b0000000000000000n, 0x20010000n, 0x2002n];
  fc.assert(
    fc.property(bits(128n), (value) => {
      if (known[0] === value >> 32n || known[1] === value >> 96n || known[2] === value >> 112n) return true;
      const parsed = parseIpAddress(textOf(value));
      return parsed?.family !== 6 || parsed.embedded === null;
    }),
  );
  t.end();
});
