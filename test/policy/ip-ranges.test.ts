import { isIP } from 'node:net';
import fc from 'fast-check';
import t from 'tap';
import { parseIpAddress } from '../../src/policy/ip-address.js';
import { compileIpRanges, InvalidIpRange } from '../../src/policy/ip-ranges.js';
import { isReservedAddress } from '../../src/policy/ip-address.js';
import { address } from './fixtures.js';

/** The bits of a dotted-decimal IPv4 address. */
function ipv4Bits(text: string): string {
  return text
    .split('.')
    .map((part) => Number(part).toString(2).padStart(8, '0'))
    .join('');
}

/** The 128 bits of an IPv6 address in any spelling. */
function ipv6Bits(text: string): string {
  const groupBits = (groups: string): string =>
    groups
      .split(':')
      .filter((group) => group !== '')
      .map((group) => (group.includes('.') ? ipv4Bits(group) : Number(`0x${group}`).toString(2).padStart(16, '0')))
      .join('');
  const [left = '', right] = text.split('::');
  if (right === undefined) return groupBits(left);
  const [leftBits, rightBits] = [groupBits(left), groupBits(right)];
  return leftBits + '0'.repeat(128 - leftBits.length - rightBits.length) + rightBits;
}

const mappedPrefix = '0'.repeat(80) + '1'.repeat(16);

/** The bits used to compare addresses: 32 or 128; IPv4-mapped counts as IPv4. */
function comparedBits(text: string): string {
  const bits = text.includes(':') ? ipv6Bits(text) : ipv4Bits(text);
  return bits.length === 128 && bits.startsWith(mappedPrefix) ? bits.slice(96) : bits;
}

/** Whether an entry contains an address, by comparing characters. */
function naivelyContains(entry: string, text: string): boolean {
  const [network = '', length] = entry.split('/');
  const networkBits = comparedBits(network);
  const bits = comparedBits(text);
  if (bits.length !== networkBits.length) return false;
  const dropped = network.includes(':') && networkBits.length === 32 ? 96 : 0;
  const prefix = length === undefined ? bits.length : Number(length) - dropped;
  return bits.slice(0, prefix) === networkBits.slice(0, prefix);
}

type Spelling = 'full' | 'plain' | 'compressed' | 'dotted';
const spelling = fc.constantFrom<Spelling>('full', 'plain', 'compressed', 'dotted');

function writeIpv4(value: bigint): string {
  return [24n, 16n, 8n, 0n].map((shift) => ((value >> shift) & 255n).toString()).join('.');
}

function writeIpv6(value: bigint, spelling: Spelling): string {
  const groups = [112n, 96n, 80n, 64n, 48n, 32n, 16n, 0n].map((shift) => ((value >> shift) & 65535n).toString(16));
  switch (spelling) {
    case 'full':
      return groups.map((group) => group.padStart(4, '0').toUpperCase()).join(':');
    case 'plain':
      return groups.join(':');
    case 'compressed':
      return groups.join(':').replace(/(?:^|:)0(?::0)*(?::|$)/, '::');
    case 'dotted':
      return `${groups.slice(0, 6).join(':')}:${writeIpv4(value & 0xffffffffn)}`;
  }
}

/** The three kinds of address. */
type Kind = 'ipv4' | 'mapped' | 'ipv6';
const kind = fc.constantFrom<Kind>('ipv4', 'mapped', 'ipv6');
const mappedBase = 0xffff00000000n;
const widthOf = (kind: Kind): number => (kind === 'ipv6' ? 128 : 32);

function write(kind: Kind, value: bigint, spelling: Spelling): string {
  if (kind === 'ipv4') return writeIpv4(value);
  return writeIpv6(kind === 'mapped' ? mappedBase | value : value, spelling);
}

interface Block {
  readonly kind: Kind;
  readonly value: bigint;
  /** Prefix length in the address's own width; null: a single address without a slash. */
  readonly length: number | null;
  readonly spelling: Spelling;
}

/** Blocks that overlap, touch and contain one another more often than random ones. */
const block: fc.Arbitrary<Block> = kind.chain((kind) => {
  const width = widthOf(kind);
  const crowd = kind === 'ipv6' ? 0x20010db8n << 96n : 0x0a000000n;
  return fc.record({
    kind: fc.constant(kind),
    value: fc.oneof(
      { weight: 4, arbitrary: fc.bigInt(0n, 255n).map((offset) => crowd + offset) },
      { weight: 1, arbitrary: fc.bigInt(0n, (1n << BigInt(width)) - 1n) },
      { weight: 1, arbitrary: fc.constantFrom(0n, (1n << BigInt(width)) - 1n) },
    ),
    length: fc.oneof(
      { weight: 4, arbitrary: fc.integer({ min: width - 8, max: width }) },
      { weight: 1, arbitrary: fc.integer({ min: 0, max: width }) },
      { weight: 1, arbitrary: fc.constant(null) },
    ),
    spelling,
  });
});

function entryOf({ kind, value, length, spelling }: Block): string {
  const slash = length === null ? '' : `/${kind === 'mapped' ? length + 96 : length}`;
  return `${write(kind, value, spelling)}${slash}`;
}

/** The first or last address of a block plus `step`, written as an address of the kind `other`. */
function edgeOf({ kind, value, length }: Block, last: boolean, step: bigint, other: Kind, spelling: Spelling): string {
  const width = BigInt(widthOf(kind));
  const hostBits = width - BigInt(length ?? width);
  const first = (value >> hostBits) << hostBits;
  const edge = (last ? first + (1n << hostBits) - 1n : first) + step;
  return write(other, BigInt.asUintN(widthOf(other), edge), spelling);
}

const blocksAndProbe = fc.array(block, { minLength: 1, maxLength: 8 }).chain((blocks) =>
  fc.record({
    entries: fc.constant(blocks.map(entryOf)),
    probe: fc.oneof(
      {
        weight: 6,
        arbitrary: fc
          .tuple(fc.constantFrom(...blocks), fc.boolean(), fc.constantFrom(-1n, 0n, 1n), fc.option(kind), spelling)
          .map(([block, last, step, other, spelling]) => edgeOf(block, last, step, other ?? block.kind, spelling)),
      },
      { weight: 1, arbitrary: block.map(({ kind, value, spelling }) => write(kind, value, spelling)) },
    ),
  }),
);

/** Texts that resemble addresses, and arbitrary strings. */
const hostileText = fc.oneof(
  fc.string({ unit: fc.constantFrom(...Array.from('0123456789abcdefABCDEF:./%x-[] ')) }),
  fc.string({ unit: fc.constantFrom('::', ':', '.', '0', '1', '255', '256', 'ffff', '::ffff:', '1.2.3.4', '/', '32') }),
  fc.string({ unit: 'binary' }),
  fc.string(),
  fc
    .tuple(block, fc.nat(45), fc.constantFrom('', '0', ':', '.', '/', ' ', '%', 'g', '\n', '\0', '0x'), fc.boolean())
    .map(([{ kind, value, spelling }, at, inserted, replaces]) => {
      const text = write(kind, value, spelling);
      return text.slice(0, at) + inserted + text.slice(replaces ? at + 1 : at);
    }),
);

t.test('every spelling of an address is read as the same address', (t) => {
  const table: readonly (readonly [text: string, family: 4 | 6, value: number | bigint, canonical: string])[] = [
    ['0.0.0.0', 4, 0, '0.0.0.0'],
    ['1.2.3.4', 4, 0x01020304, '1.2.3.4'],
    ['192.0.2.7', 4, 0xc0000207, '192.0.2.7'],
    ['255.255.255.255', 4, 0xffffffff, '255.255.255.255'],
    ['::ffff:1.2.3.4', 4, 0x01020304, '1.2.3.4'],
    ['::FFFF:1.2.3.4', 4, 0x01020304, '1.2.3.4'],
    ['::ffff:102:304', 4, 0x01020304, '1.2.3.4'],
    ['0:0:0:0:0:ffff:1.2.3.4', 4, 0x01020304, '1.2.3.4'],
    ['0000:0000:0000:0000:0000:ffff:0102:0304', 4, 0x01020304, '1.2.3.4'],
    ['::ffff:255.255.255.255', 4, 0xffffffff, '255.255.255.255'],
    ['::', 6, 0n, '::'],
    ['::1', 6, 1n, '::1'],
    ['0:0:0:0:0:0:0:1', 6, 1n, '::1'],
    ['2001:DB8:0:0::1', 6, 0x20010db8000000000000000000000001n, '2001:db8::1'],
    ['2001:0db8:0000:0000:0000:0000:0000:0001', 6, 0x20010db8000000000000000000000001n, '2001:db8::1'],
    ['1:2:3:4:5:6:7::', 6, 0x00010002000300040005000600070000n, '1:2:3:4:5:6:7:0'],
    ['64:ff9b::1.2.3.4', 6, 0x0064ff9b000000000000000001020304n, '64:ff9b::102:304'],
    ['::ffff:0:1.2.3.4', 6, 0xffff000001020304n, '::ffff:0:102:304'],
    ['0:0:0:0:0:0:1.2.3.4', 6, 0x01020304n, '::102:304'],
    ['ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255', 6, (1n << 128n) - 1n, Array(8).fill('ffff').join(':')],
  ];
  for (const [text, family, value, canonical] of table) {
    const read = parseIpAddress(text);
    t.strictSame([read?.family, read?.value, read?.text], [family, value, canonical], text);
  }
  t.end();
});

/** An IPv6 address such as `::1.2.3.4` in the form of RFC 5952, here `::102:304`. */
function hexadecimalForm(text: string): string {
  const value = Number(`0b${ipv6Bits(text)}`);
  const [high, low] = [Math.floor(value / 65536), value % 65536];
  return high === 0 ? `::${low.toString(16)}` : `::${high.toString(16)}:${low.toString(16)}`;
}

t.test('the deprecated ::1.2.3.4 is not IPv4-mapped, so it never matches the IPv4 client 1.2.3.4', (t) => {
  for (const text of ['::1.2.3.4', '::192.0.2.7', '::0.0.0.1']) {
    const parsed = parseIpAddress(text);
    t.ok(parsed === null || parsed.text === hexadecimalForm(text), text);
  }
  let ranges = compileIpRanges([]);
  try {
    ranges = compileIpRanges(['::1.2.3.0/120', '::192.0.2.7']);
  } catch (error) {
    t.match(error, { name: 'InvalidIpRange' }, 'a refusal is correct too');
  }
  t.notOk(ranges.contains(address('1.2.3.4')), '::1.2.3.0/120 does not admit 1.2.3.4');
  t.notOk(ranges.contains(address('192.0.2.7')), '::192.0.2.7 does not admit 192.0.2.7');
  t.end();
});

/** Strings that another parser might accept as an address; each could change the meaning of an allowlist. */
const notAddresses = [
  ['', 'nothing'],
  ['010.1.2.3', 'octal'],
  ['00.0.0.0', 'leading zero'],
  ['1.2.3.04', 'leading zero at the end'],
  ['192.000.2.7', 'leading zeros within'],
  ['0x7f.0.0.1', 'hexadecimal part'],
  ['0x7f000001', 'hexadecimal integer'],
  ['0177.0.0.1', 'octal loopback'],
  ['2130706433', 'integer'],
  ['0', 'zero'],
  ['127.1', 'two parts'],
  ['1.2.3', 'three parts'],
  ['1.2.3.4.5', 'five parts'],
  ['1.2.3.', 'empty part'],
  ['.1.2.3', 'empty first part'],
  ['1..3.4', 'empty part within'],
  ['1.2.3.4.', 'trailing dot'],
  ['256.1.1.1', 'part above 255'],
  ['1.2.3.256', 'last part above 255'],
  ['1.2.3.4294967296', 'part above 32 bits'],
  ['-1.2.3.4', 'negative part'],
  ['+1.2.3.4', 'plus sign'],
  ['1e1.2.3.4', 'exponent'],
  [' 1.2.3.4', 'blank before'],
  ['1.2.3.4 ', 'blank after'],
  ['1.2.3.4\n', 'newline after'],
  ['\t1.2.3.4', 'tab before'],
  ['1.2.3.4\0', 'NUL after'],
  ['1.2.3. 4', 'blank within'],
  ['1.2.3.4:80', 'IPv4 with a port'],
  ['1.2.3.4%eth0', 'IPv4 with a zone'],
  ['1.2.3.4/32', 'CIDR'],
  ['1.2.3.4, 5.6.7.8', 'list'],
  ['\u{ff11}.2.3.4', 'full-width digit'],
  ['\u{661}.2.3.4', 'Arabic digit'],
  ['1\u{3002}2\u{3002}3\u{3002}4', 'ideographic full stops'],
  ['::ffff:010.1.2.3', 'octal in IPv4-mapped'],
  ['::ffff:0x7f.0.0.1', 'hexadecimal in IPv4-mapped'],
  ['::ffff:1.2.3', 'short IPv4-mapped'],
  ['::ffff:1.2.3.4.5', 'long IPv4-mapped'],
  ['::ffff:256.2.3.4', 'IPv4-mapped part above 255'],
  ['::ffff:16909060', 'integer in IPv4-mapped'],
  ['::ffff:1.2.3.4:80', 'IPv4-mapped with a port'],
  ['1.2.3.4::', 'IPv4 at the front of IPv6'],
  ['::1.2.3.4:5', 'IPv4 within IPv6'],
  ['1:2:3:4:5:6:7:1.2.3.4', 'IPv6 too long by its IPv4'],
  ['fe80::1%eth0', 'zone'],
  ['fe80::1%25eth0', 'encoded zone'],
  ['::1%', 'empty zone'],
  ['[::1]', 'brackets'],
  ['[::1]:443', 'brackets and port'],
  ['[1.2.3.4]', 'IPv4 in brackets'],
  ['1:2:3:4:5:6:7', 'seven groups'],
  ['1:2:3:4:5:6:7:8:9', 'nine groups'],
  ['1:2:3:4::5:6:7:8', 'nine groups with ::'],
  ['1::2::3', 'two ::'],
  [':::', 'three colons'],
  [':', 'one colon'],
  [':1', 'leading colon'],
  ['1:', 'trailing colon'],
  ['1:2:3:4:5:6:7:8:', 'trailing colon after eight'],
  ['12345::', 'five digits in a group'],
  ['00001::', 'five digits, leading zero'],
  ['g::1', 'not hexadecimal'],
  [' ::1', 'blank before IPv6'],
  ['::1 ', 'blank after IPv6'],
  ['localhost', 'a name'],
  ['unknown', "a proxy's token for an unknown address"],
  ['_hidden', "a proxy's obfuscated identifier"],
  ['null', 'null'],
  ['*', 'a star'],
] as const;

t.test('a text that is not exactly one IP address is rejected, alone and in a list', (t) => {
  for (const [text, why] of notAddresses) {
    t.equal(parseIpAddress(text), null, `${why}: ${JSON.stringify(text)}`);
    if (text === '1.2.3.4/32') continue;
    t.throws(() => compileIpRanges(['192.0.2.1', text]), { name: 'InvalidIpRange', entry: text }, `${why} in a list`);
    t.throws(
      () => compileIpRanges([`${text}/24`]),
      { name: 'InvalidIpRange', entry: `${text}/24` },
      `${why} in a CIDR`,
    );
  }
  t.end();
});

t.test('a text is an address exactly where the operating system accepts it, except zones', (t) => {
  fc.assert(
    fc.property(hostileText, (text) => {
      fc.pre(!/^::[\d.]*\.[\d.]*$/.test(text)); // the deprecated form has its own test
      return (parseIpAddress(text) !== null) === (isIP(text) !== 0 && !text.includes('%'));
    }),
    { numRuns: 5000 },
  );
  t.end();
});

t.test('an address has one value and one canonical text in every spelling', (t) => {
  fc.assert(
    fc.property(block, spelling, ({ kind, value, spelling }, other) => {
      const parsed = address(write(kind, value, spelling));
      const bits = comparedBits(write(kind, value, spelling));
      t.equal(parsed.family, bits.length === 32 ? 4 : 6);
      t.equal(parsed.value.toString(2).padStart(bits.length, '0'), bits);
      t.strictSame(address(write(kind, value, other)), parsed);
      t.strictSame(address(parsed.text), parsed);
    }),
    { numRuns: 300 },
  );
  t.end();
});

t.test('a compiled list admits exactly the addresses of its entries', (t) => {
  const table: readonly (readonly [
    entries: readonly string[],
    admitted: readonly string[],
    refused: readonly string[],
  ])[] = [
    [[], [], ['0.0.0.0', '192.0.2.7', '::', '::1']],
    [['192.0.2.7'], ['192.0.2.7', '::ffff:192.0.2.7'], ['192.0.2.6', '192.0.2.8', '::c000:207']],
    [['192.0.2.7/32'], ['192.0.2.7'], ['192.0.2.6', '192.0.2.8']],
    [['192.0.2.0/24'], ['192.0.2.0', '192.0.2.255'], ['192.0.1.255', '192.0.3.0']],
    [['192.0.2.129/25'], ['192.0.2.128', '192.0.2.255'], ['192.0.2.127', '192.0.3.0']],
    [['192.0.2.6/31'], ['192.0.2.6', '192.0.2.7'], ['192.0.2.5', '192.0.2.8']],
    [['128.0.0.0/1'], ['128.0.0.0', '255.255.255.255'], ['127.255.255.255', '0.0.0.0']],
    [['0.0.0.0/0'], ['0.0.0.0', '255.255.255.255', '::ffff:1.2.3.4'], ['::', '::1', '2001:db8::1']],
    [['::/0'], ['::', '::1', 'ffff::'], ['0.0.0.0', '1.2.3.4', '::ffff:1.2.3.4']],
    [['2001:db8::/32'], ['2001:db8::', '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff'], ['2001:db7:ffff::', '2001:db9::']],
    [['2001:db8::7/128'], ['2001:db8::7'], ['2001:db8::6', '2001:db8::8']],
    [['2001:db8::7/127'], ['2001:db8::6', '2001:db8::7'], ['2001:db8::5', '2001:db8::8']],
    [['::ffff:1.2.3.4'], ['1.2.3.4', '::ffff:102:304'], ['1.2.3.5', '::102:304']],
    [['::ffff:1.2.3.0/120'], ['1.2.3.0', '1.2.3.255', '::ffff:1.2.3.9'], ['1.2.2.255', '1.2.4.0']],
    [['::ffff:102:300/120'], ['1.2.3.0', '1.2.3.255'], ['1.2.2.255', '1.2.4.0']],
    [['::ffff:0:0/96'], ['0.0.0.0', '255.255.255.255'], ['::', '::fffe:ffff:ffff', '::1:0:0:0']],
    [['::ffff:1.2.3.4/128'], ['1.2.3.4'], ['1.2.3.3', '1.2.3.5']],
    [
      ['10.0.0.0/24', '10.0.1.0/24'],
      ['10.0.0.0', '10.0.1.255'],
      ['9.255.255.255', '10.0.2.0'],
    ],
    [['10.0.0.0/8', '10.1.0.0/16', '10.1.2.3'], ['10.0.0.0', '10.1.2.3', '10.200.0.1'], ['11.0.0.0']],
    [
      ['10.0.0.3', '10.0.0.1'],
      ['10.0.0.1', '10.0.0.3'],
      ['10.0.0.0', '10.0.0.2', '10.0.0.4'],
    ],
    [
      ['192.0.2.7', '2001:db8::/64'],
      ['192.0.2.7', '2001:db8::1'],
      ['192.0.2.8', '2001:db8:0:1::'],
    ],
    [['192.0.2.7', '192.0.2.7'], ['192.0.2.7'], ['192.0.2.8']],
  ];
  for (const [entries, admitted, refused] of table) {
    const ranges = compileIpRanges(entries);
    for (const text of admitted) t.ok(ranges.contains(address(text)), `[${entries.join()}] admits ${text}`);
    for (const text of refused) t.notOk(ranges.contains(address(text)), `[${entries.join()}] refuses ${text}`);
  }
  t.end();
});

t.test('a prefix length that is not a plain number within the address width is rejected', (t) => {
  const lengths = [
    '',
    ' ',
    '-1',
    '01',
    '00',
    '+8',
    '8 ',
    ' 8',
    '8.0',
    '1e1',
    '0x8',
    '255.255.255.0',
    '8/8',
    '\u{ff18}',
    '1000',
  ];
  for (const network of ['192.0.2.0', '2001:db8::', '::ffff:192.0.2.0']) {
    for (const length of [...lengths, network === '192.0.2.0' ? '33' : '129']) {
      const entry = `${network}/${length}`;
      t.throws(() => compileIpRanges([entry]), { name: 'InvalidIpRange', entry }, JSON.stringify(entry));
    }
  }
  for (const entry of ['::ffff:1.2.3.4/95', '::ffff:1.2.3.4/24', '::ffff:1.2.3.4/0', '/', '/24', '192.0.2.0\\24']) {
    t.throws(() => compileIpRanges([entry]), { name: 'InvalidIpRange', entry }, entry);
  }
  t.end();
});

t.test('the error names the first invalid entry, truncated if it is long', (t) => {
  t.throws(() => compileIpRanges(['192.0.2.1', '192.0.2.0/33', 'x']), {
    name: 'InvalidIpRange',
    entry: '192.0.2.0/33',
    message: '"192.0.2.0/33" is not an IP address or CIDR',
  });
  const long = 'x'.repeat(100_000);
  t.throws(() => compileIpRanges([long]), {
    entry: long,
    message: `"${'x'.repeat(64)}" is not an IP address or CIDR`,
  });
  t.end();
});

t.test('a compiled list agrees with a bit-by-bit comparison', (t) => {
  let admitted = 0;
  let refused = 0;
  fc.assert(
    fc.property(blocksAndProbe, ({ entries, probe }) => {
      const expected = entries.some((entry) => naivelyContains(entry, probe));
      if (expected) admitted += 1;
      else refused += 1;
      return compileIpRanges(entries).contains(address(probe)) === expected;
    }),
    { numRuns: 4000 },
  );
  t.ok(admitted > 400 && refused > 400, 'both results occurred');
  t.end();
});

t.test('the address reader never throws, and a list throws only its own error', (t) => {
  const nearlyCidr = fc
    .tuple(hostileText, fc.constantFrom('/', '//', '', '/1'), hostileText)
    .map((parts) => parts.join(''));
  fc.assert(
    fc.property(fc.oneof(hostileText, nearlyCidr), (text) => {
      parseIpAddress(text);
      try {
        compileIpRanges([text]).contains(address('192.0.2.7'));
      } catch (error) {
        return error instanceof InvalidIpRange && error.entry === text;
      }
      return true;
    }),
    { numRuns: 3000 },
  );
  t.equal(parseIpAddress('1'.repeat(1_000_000)), null);
  t.equal(parseIpAddress(':'.repeat(1_000_000)), null);
  t.end();
});

t.test('addresses that cannot occur on the public internet are recognized', (t) => {
  const reserved = [
    ...['0.0.0.0', '10.0.0.1', '100.64.0.1', '127.0.0.1', '169.254.1.1', '172.16.0.1', '172.31.255.255', '192.168.0.1'],
    ...['192.0.2.7', '198.51.100.7', '203.0.113.7', '198.18.0.1', '224.0.0.1', '240.0.0.1', '255.255.255.255', '::'],
    ...['::1', 'fe80::1', 'fc00::1', 'fd12:3456::1', 'ff02::1', '2001:db8::1', '::ffff:10.0.0.1', '::ffff:127.0.0.1'],
  ];
  const unreserved = [
    ...['1.1.1.1', '9.255.255.255', '11.0.0.0', '100.63.255.255', '100.128.0.0', '126.255.255.255', '128.0.0.1'],
    ...['172.15.255.255', '172.32.0.0', '192.167.255.255', '192.169.0.0', '223.255.255.255', '::ffff:1.1.1.1'],
    ...['2606:4700:4700::1111', '2a00:1450:4001::1', '2001:db7:ffff::1', '2001:db9::1'],
  ];
  for (const text of reserved) t.equal(isReservedAddress(address(text)), true, text);
  for (const text of unreserved) t.equal(isReservedAddress(address(text)), false, text);
  t.end();
});
