import fc from 'fast-check';
import t from 'tap';
import { parseIpAddress } from '../../src/policy/ip-address.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import { compileOriginPatterns } from '../../src/policy/origin-patterns.js';
import { checkIpAllowlist } from '../../src/registry/merchants/ip-allowlist.js';
import { compileMerchantRecord } from '../../src/gateway/records.js';
import { checkOriginAllowlist } from '../../src/registry/merchants/origin-allowlist.js';
import { merchantFields } from '../../src/registry/merchants/schema.js';
import { Check } from '../../src/typebox/typebox.js';
import { emptyList } from '../empty-list.js';

t.test('IP addresses and CIDRs are normalised and deduplicated', (t) => {
  const cases: [given: string, canonical: string][] = [
    ['8.8.8.8', '8.8.8.8'],
    ['8.8.8.8/32', '8.8.8.8'],
    ['8.8.8.9/24', '8.8.8.0/24'],
    ['::ffff:8.8.8.8', '8.8.8.8'],
    ['::ffff:8.8.8.9/120', '8.8.8.0/24'],
    ['2A00:0:0:0:0:0:0:1', '2a00::1'],
    ['2a00:1:2:3:4:5:6:7/32', '2a00:1::/32'],
    ['2a00::1/128', '2a00::1'],
    ['0.0.0.0/0', '0.0.0.0/0'],
    ['::/0', '::/0'],
  ];
  for (const [given, canonical] of cases) t.same(checkIpAllowlist([given]).entries, [canonical], given);
  t.same(checkIpAllowlist(cases.slice(0, 5).map(([given]) => given)).entries, ['8.8.8.8', '8.8.8.0/24']);
  for (const given of [
    '',
    ' 8.8.8.8',
    '8.8.8',
    '010.0.0.1',
    '8.8.8.8/33',
    '8.8.8.8/',
    'fe80::1%eth0',
    'shop.example',
  ]) {
    t.match(checkIpAllowlist([given]), { entries: emptyList, problems: [{ path: 'ipAllowlist[0]' }] }, given);
  }
  t.end();
});

t.test('a normalised IP entry admits the same clients and normalises to itself', (t) => {
  const address = fc.oneof(
    fc.ipV4(),
    fc.ipV6(),
    fc.ipV4().map((text) => `::ffff:${text}`),
  );
  const entry = fc.tuple(address, fc.nat(128)).map(([text, length]) => {
    const range = `${text}/${text.includes(':') ? length : length % 33}`;
    return checkIpAllowlist([range]).entries.length === 1 ? range : text;
  });
  fc.assert(
    fc.property(fc.array(entry, { maxLength: 5 }), fc.array(address, { maxLength: 20 }), (given, callers) => {
      const { entries } = checkIpAllowlist(given);
      const [before, after] = [compileIpRanges(given), compileIpRanges(entries)];
      const asked = [...callers, ...given.map((one) => one.split('/')[0] ?? '')].map(parseIpAddress);
      const agree = asked.every((one) => one === null || before.contains(one) === after.contains(one));
      return agree && checkIpAllowlist(entries).entries.join() === entries.join();
    }),
    { numRuns: 500 },
  );
  t.pass();
  t.end();
});

t.test('an IP allowlist that admits a large part of the internet is flagged, however finely it is split', (t) => {
  const flags = (entries: string[]) => checkIpAllowlist(entries).concerns.map(({ flag }) => flag);
  const pieces = (bits: number) =>
    Array.from({ length: 2 ** bits }, (_, index) => `${(index * 256) / 2 ** bits}.0.0.0/${bits}`);
  for (const bits of [0, 1, 2, 8]) t.ok(flags(pieces(bits)).includes('open_range'), `split into ${2 ** bits} ranges`);
  t.same(flags(['20.0.0.0/8']), []);
  t.same(flags(['20.0.0.0/8', '20.1.0.0/16', '20.1.2.3']), [], 'overlapping ranges count once');
  t.same(flags(['20.0.0.0/8', '21.0.0.1']), ['open_range']);
  t.same(flags(['2a00::/16']), []);
  t.same(flags(['2a00::/15']), ['open_range']);
  t.same(flags(['172.31.255.0/24']), ['private_range']);
  t.end();
});

t.test('origins are normalised and deduplicated', (t) => {
  const cases: [given: string, canonical: string][] = [
    ['Shop.Example', 'shop.example'],
    ['shop.example.', 'shop.example'],
    ['*.SHOP.example', '*.shop.example'],
    ['HTTPS://Shop.Example:443', 'https://shop.example'],
    ['http://shop.example:80', 'http://shop.example'],
    ['http://shop.example:443', 'http://shop.example:443'],
    ['shop.example:443', 'shop.example:443'],
    ['shop.example:08443', 'shop.example:8443'],
    ['BÜCHER.example', 'xn--bcher-kva.example'],
    ['https://*.bücher.example:8443', 'https://*.xn--bcher-kva.example:8443'],
    ['[2A00::1]:8443', '[2a00::1]:8443'],
  ];
  for (const [given, canonical] of cases) t.same(checkOriginAllowlist([given]).entries, [canonical], given);
  t.same(checkOriginAllowlist(['a.example', 'A.example.', 'a.EXAMPLE']).entries, ['a.example']);
  for (const given of [
    '',
    '*',
    'ftp://a.example',
    'a.example/',
    'https://a.example/x',
    'a b',
    '*.8.8.8.8',
    'a.example:0',
  ]) {
    t.match(checkOriginAllowlist([given]), { entries: emptyList, problems: [{ path: 'originAllowlist[0]' }] }, given);
  }
  t.end();
});

/** A host name of the given length. */
function hostOf(length: number): string {
  return `${'a.'.repeat(length)}example`.slice(-length);
}

t.test('an origin that gateways cannot parse or that exceeds the import limit is rejected', (t) => {
  const characters = Array.from({ length: 290 }, (_, index) => String.fromCodePoint(0x4e00 + 61 * index)).join('');
  t.match(checkOriginAllowlist(['a.example', `${characters}.example`]), {
    entries: ['a.example'],
    problems: [
      {
        path: 'originAllowlist[1]',
        message:
          /^originAllowlist\[1\] must name a host of at most 253 characters in its DNS form \(xn--…\), but this host has [5-9]\d\d$/,
      },
    ],
  });
  t.match(checkOriginAllowlist([hostOf(254)]), { entries: emptyList, problems: { length: 1 } });
  const [longest = '', ...others] = checkOriginAllowlist([`https://*.${hostOf(253)}.:65535`]).entries;
  t.same([longest, others], [`https://*.${hostOf(253)}:65535`, []]);
  t.ok(Check(merchantFields.originAllowlist, [longest]), 'the import schema accepts the exported value');
  const record = { merchantId: 'm_1', name: 'Ada', status: 'ACTIVE', goLive: true, ipAllowlist: null, revision: 1 };
  compileMerchantRecord({ ...record, originAllowlist: [longest] });
  t.end();
});

t.test('a normalised origin admits the same requests and normalises to itself', (t) => {
  const host = fc.constantFrom(
    'shop.example',
    'SHOP.example.',
    'a.shop.example',
    'bücher.example',
    '8.8.8.8',
    '[2A00::1]',
  );
  const scheme = fc.constantFrom('', 'http://', 'HTTPS://');
  const port = fc.constantFrom('', ':80', ':443', ':0443', ':8443');
  const entry = fc.tuple(scheme, fc.constantFrom('', '*.'), host, port).map((parts) => parts.join(''));
  const origin = fc.tuple(fc.constantFrom('http://', 'https://'), host, port).map((parts) => parts.join(''));
  fc.assert(
    fc.property(entry, fc.array(origin, { maxLength: 20 }), (given, origins) => {
      const { entries } = checkOriginAllowlist([given]);
      if (entries.length === 0) return true;
      const [before, after] = [compileOriginPatterns([given]), compileOriginPatterns(entries)];
      const claims = origins.map((value) => ({ header: 'origin', value }) as const);
      const agree = claims.every((claim) => before.matches(claim) === after.matches(claim));
      return agree && checkOriginAllowlist(entries).entries.join() === entries.join();
    }),
    { numRuns: 500 },
  );
  t.pass();
  t.end();
});
