import { createHash } from 'node:crypto';
import fc from 'fast-check';
import t from 'tap';
import { ExitListRejected } from '../../src/adapters/tor/exit-source.js';
import { parseExitList } from '../../src/adapters/tor/parse-list.js';
import { admitExits, rejectShrunken, TorExitList } from '../../src/adapters/tor/tor-exit-list.js';
import type { IpAddress } from '../../src/policy/ip-address.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import { address } from '../policy/fixtures.js';

const bulkList = '198.51.100.9\n203.0.113.77\n2001:db8::5\n';
const exitAddresses = [
  'ExitNode 0011BD2485AD45D984EC4159C88FC066E5E3300E',
  'Published 2025-01-15 10:00:00',
  'LastStatus 2025-01-15 11:00:00',
  'ExitAddress 198.51.100.9 2025-01-15 11:10:00',
  'ExitAddress 203.0.113.77 2025-01-15 11:12:30',
  'ExitNode 00DEADBEEF85AD45D984EC4159C88FC066E5E330',
  'Published 2025-01-15 09:00:00',
  'LastStatus 2025-01-15 11:00:00',
  'ExitAddress 2001:db8::5 2025-01-15 11:20:00',
  '',
].join('\n');

function textsOf(list: string): string[] {
  return [...new Set([...parseExitList(list)].map(({ text }) => text))];
}

/** The reason and the message of a refusal, such as `html: the content is …`. */
async function refusalOf(act: () => unknown): Promise<string> {
  try {
    await act();
    return 'none';
  } catch (error) {
    return error instanceof ExitListRejected ? `${error.reason}: ${error.message}` : `not expected: ${String(error)}`;
  }
}

function admit(list: string, allowReserved = true, trustedProxies: readonly string[] = []) {
  return admitExits(parseExitList(list), { allowReserved, trustedProxies: compileIpRanges(trustedProxies) });
}

function problemOf(list: string, allowReserved = true): Promise<string> {
  return refusalOf(() => admit(list, allowReserved));
}

t.test('both formats in which Tor publishes its exits are read', (t) => {
  const exits = ['198.51.100.9', '203.0.113.77', '2001:db8::5'];
  t.strictSame(textsOf(bulkList), exits, 'one address a line');
  t.strictSame(textsOf(exitAddresses), exits, 'blocks of relays');
  t.end();
});

t.test('comments, blank lines, blanks around an address, a byte order mark and CRLF are ignored', (t) => {
  const list = '\uFEFF# Tor exits\r\n\r\n  198.51.100.9 \r\n#203.0.113.1\r\n\t203.0.113.77\r\n \n  # end\n2001:db8::5';
  t.strictSame(textsOf(list), ['198.51.100.9', '203.0.113.77', '2001:db8::5']);
  t.strictSame(textsOf(exitAddresses.replaceAll('\n', '\r\n')), textsOf(exitAddresses));
  t.end();
});

t.test('an address is one exit, in any number of listings and spellings', (t) => {
  const spellings = [
    '2001:db8::5',
    '2001:DB8::5',
    '2001:db8:0:0:0:0:0:5',
    '2001:0db8:0000:0000:0000:0000:0000:0005',
    '2001:db8::0.0.0.5',
  ];
  t.strictSame(textsOf(spellings.join('\n')), ['2001:db8::5']);
  t.strictSame(textsOf('::ffff:198.51.100.9\n198.51.100.9\n::ffff:c633:6409\n0:0:0:0:0:FFFF:c633:6409'), [
    '198.51.100.9',
  ]);
  for (const listed of spellings) {
    const exits = new TorExitList(parseExitList(listed));
    t.ok(
      spellings.every((asked) => exits.has(address(asked))),
      listed,
    );
    t.equal(exits.size, 1);
  }
  t.end();
});

t.test('a text that is not an exit list is refused, so that it never replaces one', async (t) => {
  const page = '<!DOCTYPE html>\n<html><body>\n<p>198.51.100.9</p></body></html>\n';
  t.match(await problemOf(page), /^html: /, 'an HTML page');
  t.match(await problemOf(`\uFEFF \n${page}`), /^html: /, 'after blanks');
  t.match(await problemOf(`${bulkList}<html>`), /^malformed: line 4 /, 'an HTML page after a list');
  for (const empty of ['', '\n', '\r\n\r\n', '# nothing\n#\n', 'Published 2025-01-15 10:00:00\n']) {
    t.match(await problemOf(empty), /^empty: the list contains no address/, JSON.stringify(empty));
  }
  t.match(await problemOf('\u0000\u0001\u0002'), /^malformed: line 1 /, 'binary data');
});

t.test(
  'a single line that is neither an address nor a line of the format refuses the list and is named by number',
  async (t) => {
    const lines = [
      '198.51.100',
      '198.51.100.',
      '198.51.100.256',
      '198.51.100.009',
      '198.51.100.0/24',
      '198.51.100.9:443',
      '198.51.100.9, 198.51.100.10',
      '198.51.100.9 # exit',
      '198.51.100.9 198.51.100.10',
      '2001:db8::g',
      '2001:db8::5%eth0',
      '[2001:db8::5]',
      'exit.example',
      '3325256713',
      'Exit',
      'ExitNode',
      'ExitAddress',
      'ExitAddress ',
      'ExitAddress 198.51.100',
      'ExitAddress  198.51.100.9 2025-01-15 11:10:00',
      'ExitAddress exit.example 2025-01-15 11:10:00',
      'exitaddress 198.51.100.9 2025-01-15 11:10:00',
      'XExitAddress 198.51.100.9 2025-01-15 11:10:00',
      'PublishedX 2025-01-15 10:00:00',
      'X-Published 2025-01-15 10:00:00',
    ];
    for (const line of lines) {
      t.match(await problemOf(`${bulkList}${line}\n203.0.113.1\n`), /^malformed: line 4 /, line);
      t.match(await problemOf(`# c\r\n\r\n${line}`), /^malformed: line 3 /);
    }
    t.notMatch(await problemOf('svc_live_pasted'), /svc_/, 'the problem does not quote the line');
  },
);

t.test('a truncated exit line is refused: its address may have lost digits', async (t) => {
  const rests = [
    '',
    ' ',
    ' <html>',
    ' 2025',
    ' 2025-01-15',
    ' 2025-01-15 ',
    ' 2025-01-15 11:1',
    ' 2025-01-15 11:10:00 x',
  ];
  const cuts = rests.map((rest) => `ExitAddress 198.51.100.1${rest}`);
  for (const line of cuts) t.match(await problemOf(exitAddresses + line), /^malformed: line 10 /, line);
});

t.test('a table is read by the column whose heading names an address', async (t) => {
  const rows = 'ABC, 198.51.100.9, 443\nDEF, 2001:DB8::5, 81\nABC, 198.51.100.9, 444\n';
  for (const name of ['ipaddr', 'IP', 'Address', 'ip_address', 'IP-Address', 'exit address']) {
    t.strictSame(textsOf(`# Tor\n\nfingerprint, ${name}, port\n${rows}`), ['198.51.100.9', '2001:db8::5'], name);
  }
  t.strictSame(textsOf('"ip","port"\r\n"198.51.100.9","1"\r\n'), ['198.51.100.9']);
  const refused: [string, RegExp][] = [
    [
      'fingerprint, host, port\nA, 198.51.100.9, 1\n',
      /^malformed: line 1 is neither an address nor a CSV header with a column/,
    ],
    ['198.51.100.9, 198.51.100.10\n', /^malformed: line 1 /],
    [`fingerprint, ip, port\n${rows}<html>`, /^malformed: line 5 /],
    ['ip, port\n198.51.100.9, 1\n198.51.100.10\n', /^malformed: line 3 does not have the 2 columns of the CSV header/],
    ['ip, port\n198.51.100.9, 1, 2\n', /^malformed: line 2 /],
    ['ip, port\n198.51.100.0/24, 1\n', /^malformed: line 2 has no valid address/],
    ['ip, port\n', /^empty: /],
    [`ip${',x'.repeat(64)}\n`, /^malformed: line 1 /],
  ];
  for (const [list, reason] of refused) t.match(await problemOf(list), reason, JSON.stringify(list.slice(0, 60)));
});

/** Onionoo's details of some relays, with irrelevant fields. */
function details(...relays: object[]): string {
  return JSON.stringify({ version: '8.0', relays_published: '2026-01-01 00:00:00', relays, bridges: [] });
}

t.test("relays with the flag Exit are read from Onionoo's details: their OR and their exit addresses", (t) => {
  const list = details(
    {
      nickname: 'a',
      flags: ['Exit', 'Fast', 'Running'],
      or_addresses: ['198.51.100.9:9001', '[2001:db8::5]:9001'],
      exit_addresses: ['203.0.113.77', '2001:db8::6'],
    },
    { nickname: 'guard', flags: ['Guard', 'Running'], or_addresses: ['192.0.2.1:443', '[2001:db8::bad]:443'] },
    { nickname: 'b', flags: ['Exit'], or_addresses: ['198.51.100.10:1'] },
    { nickname: 'bad', flags: ['BadExit'], or_addresses: ['192.0.2.2:1'] },
  );
  t.strictSame(textsOf(list), ['198.51.100.9', '2001:db8::5', '203.0.113.77', '2001:db8::6', '198.51.100.10']);
  t.strictSame(textsOf(`\uFEFF\n  ${list}`), textsOf(list));
  t.end();
});

t.test("JSON that is not Onionoo's details, or is truncated, is refused", async (t) => {
  const relay = { flags: ['Exit'], or_addresses: ['198.51.100.9:9001'] };
  const whole = details(relay);
  for (let end = 1; end < whole.length; end += 7) {
    t.match(await problemOf(whole.slice(0, end)), /^malformed: the JSON is malformed/, `the first ${end} characters`);
  }
  for (const other of [
    '{}',
    '{"relays":{}}',
    '{"relays":[1]}',
    details({ or_addresses: [] }),
    details({ flags: ['Exit'] }),
  ]) {
    t.match(await problemOf(other), /^malformed: the JSON is not a details document of Onionoo/, other);
  }
  t.match(await problemOf(details()), /^empty: /);
  t.match(await problemOf(details({ ...relay, flags: ['Guard'] })), /^empty: /);
  for (const invalid of [
    '198.51.100.9',
    'x:1',
    '[198.51.100:1',
    '198.51.100.9:http',
    '[2001:db8::5]',
    '2001:db8::5:1',
    '',
  ]) {
    const one = details(relay, { flags: ['Exit'], or_addresses: [invalid] });
    t.match(await problemOf(one), /^malformed: relay 2 has an invalid address/, JSON.stringify(invalid));
  }
  t.match(await problemOf(details({ ...relay, exit_addresses: ['198.51.100.9:1'] })), /^malformed: relay 1 /);
});

t.test('reserved addresses are left out and counted, unless they are allowed', async (t) => {
  const reserved = [
    ...['10.0.0.1', '172.16.0.1', '192.168.1.1', '127.0.0.1', '169.254.1.1', '100.64.0.1', '0.0.0.0', '224.0.0.1'],
    ...['192.0.2.1', '198.51.100.1', '203.0.113.1', '240.0.0.1', '255.255.255.255', '::ffff:10.0.0.2'],
    ...['::', '::1', 'fe80::1', 'fc00::1', 'fd12::1', 'ff02::1', '2001:db8::1'],
  ];
  const list = ['8.8.8.8', ...reserved, '2606:4700::1111'].join('\n');
  const admitted = await admit(list, false);
  t.strictSame(
    admitted.addresses.map(({ text }) => text),
    ['8.8.8.8', '2606:4700::1111'],
  );
  t.equal(admitted.leftOut, reserved.length);
  const all = await admit(list, true);
  t.equal(all.addresses.length, reserved.length + 2);
  t.equal(all.leftOut, 0);
  t.match(await problemOf(reserved.join('\n'), false), /^empty: .* all its addresses \(21\) are in reserved ranges/);
  t.equal(await problemOf(reserved.join('\n'), true), 'none');
});

t.test('a list that contains a trusted proxy is refused, in any spelling', async (t) => {
  const proxies = ['198.51.100.0/30', '2001:db8::/64', '10.0.0.0/8'];
  for (const named of ['198.51.100.3', '::ffff:198.51.100.1', '2001:DB8:0:0:0:0:0:7']) {
    const reason = await refusalOf(() => admit(`203.0.113.1\n${named}\n`, true, proxies));
    t.match(reason, /^names_trusted_proxy: the list contains .*, which is in trustedProxies/, named);
  }
  t.equal((await admit('203.0.113.1\n198.51.100.4\n', true, proxies)).addresses.length, 2);
  const leftOut = await admit('8.8.8.8\n10.0.0.1\n', false, proxies);
  t.same([leftOut.addresses.length, leftOut.leftOut], [1, 1], 'an address that is left out causes no refusal');
});

t.test('a list longer than any real exit list is refused', async (t) => {
  const lines = Array.from({ length: 200_001 }, (_, index) => `8.${index >> 16}.${(index >> 8) & 255}.${index & 255}`);
  t.match(await problemOf(lines.join('\n')), /^too_large: .*more than 200000 addresses/);
  t.equal((await admit(lines.slice(1).join('\n'))).addresses.length, 200_000);
});

t.test('a list that has lost more than half of the previous one is refused, unless that was small', async (t) => {
  const refused: [size: number, before: number, refused: boolean][] = [
    [500, 1000, false],
    [499, 1000, true],
    [1, 1000, true],
    [5, 10, false],
    [4, 10, true],
    [1, 9, false],
    [1000, 1, false],
    [1, 0, false],
  ];
  for (const [size, before, expected] of refused) {
    const reason = await refusalOf(() => {
      rejectShrunken(size, before);
    });
    t.equal(reason.startsWith('shrunken: '), expected, `${size} after ${before}`);
  }
});

t.test('the digest is over the addresses, one per line, so that anybody can compute it', async (t) => {
  const { digest } = await admit('# c\n198.51.100.9\n::ffff:198.51.100.9\n2001:DB8::5\n');
  const expected = createHash('sha256').update('198.51.100.9\n2001:db8::5\n').digest('hex');
  t.equal(digest, expected);
  t.equal(new TorExitList(parseExitList('198.51.100.9\n2001:db8::5')).digest, expected);
  t.equal(
    (await TorExitList.join([[address('198.51.100.9')], [address('2001:db8::5'), address('198.51.100.9')]])).digest,
    expected,
  );
  t.not((await admit('198.51.100.9\n')).digest, expected);
  t.equal(new TorExitList([]).digest, null, 'an empty list has no digest');
});

/** An address by its family and value, with its spellings. */
interface Listed {
  readonly identity: string;
  readonly spellings: readonly string[];
}

function listedIpv4(value: number): Listed {
  const dotted = [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255].join('.');
  const [high, low] = [(value >>> 16).toString(16), (value & 0xffff).toString(16)];
  return { identity: `4/${value}`, spellings: [dotted, `::ffff:${dotted}`, `0:0:0:0:0:FFFF:${high}:${low}`] };
}

function listedIpv6(value: bigint): Listed {
  const groups = value.toString(16).padStart(32, '0').match(/.{4}/g) ?? [];
  const short = groups.map((group) => group.replace(/^0{1,3}/, ''));
  return { identity: `6/${value}`, spellings: [groups.join(':'), short.join(':'), short.join(':').toUpperCase()] };
}

const someIpv4 = fc.oneof(fc.nat(6), fc.constantFrom(0x7fffffff, 0x80000000, 0xffffffff), fc.nat(0xffffffff));
const someIpv6 = fc.oneof(
  fc.bigInt({ min: 1n << 32n, max: (1n << 32n) + 6n }),
  fc.constantFrom((1n << 128n) - 1n, 1n << 127n, 0x20010db8n << 96n),
  fc.bigInt({ min: 1n << 64n, max: (1n << 128n) - 1n }),
);
const listed = fc.oneof(someIpv4.map(listedIpv4), someIpv6.map(listedIpv6));
const spelled = fc.tuple(listed, fc.nat(2)).map(([{ identity, spellings }, index]) => ({
  identity,
  text: spellings[index] ?? '',
}));

t.test('an address is an exit exactly if an equal one is listed, for any lists and spellings', (t) => {
  fc.assert(
    fc.property(
      fc.array(spelled, { minLength: 1, maxLength: 20 }),
      fc.array(spelled, { maxLength: 20 }),
      (list, asked) => {
        const identities = new Set(list.map(({ identity }) => identity));
        const exits = new TorExitList(parseExitList(list.map(({ text }) => text).join('\n')));
        if (exits.size !== identities.size) return false;
        return [...list, ...asked].every(({ identity, text }) => exits.has(address(text)) === identities.has(identity));
      },
    ),
    { numRuns: 500 },
  );
  t.end();
});

t.test('an IPv4 and an IPv6 address of the same value are distinct, and an empty list has no exits', (t) => {
  const four: IpAddress = address('0.0.0.5');
  const six: IpAddress = address('::5');
  t.notOk(new TorExitList([four]).has(six));
  t.notOk(new TorExitList([six]).has(four));
  t.equal(new TorExitList([four, six]).size, 2);
  t.equal(new TorExitList([]).size, 0);
  t.notOk(new TorExitList([]).has(four));
  t.end();
});
