import { truncate } from 'node:fs/promises';
import path from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { InvalidExitList, parseExitList } from '../../src/adapters/tor/exit-list-parser.js';
import { readTorExitFiles, TorExitList } from '../../src/adapters/tor/tor-exit-list.js';
import { OperatorError } from '../../src/config/operator-error.js';
import type { IpAddress } from '../../src/policy/ip-address.js';
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

function textsOf(list: string, allowReserved = true): string[] {
  return parseExitList(list, allowReserved).addresses.map(({ text }) => text);
}

function problemOf(list: string, allowReserved = true): string {
  try {
    parseExitList(list, allowReserved);
    return 'none';
  } catch (error) {
    return error instanceof InvalidExitList ? error.message : `not expected: ${String(error)}`;
  }
}

t.test('both formats in which Tor publishes its exits are read', (t) => {
  const exits = ['198.51.100.9', '203.0.113.77', '2001:db8::5'];
  t.strictSame(textsOf(bulkList), exits, 'one address a line');
  t.strictSame(textsOf(exitAddresses), exits, 'blocks of relays');
  t.end();
});

t.test('comments, blank lines, blanks around an address, a byte order mark and CRLF mean nothing', (t) => {
  const list = '\uFEFF# Tor exits\r\n\r\n  198.51.100.9 \r\n#203.0.113.1\r\n\t203.0.113.77\r\n \n  # end\n2001:db8::5';
  t.strictSame(textsOf(list), ['198.51.100.9', '203.0.113.77', '2001:db8::5']);
  t.strictSame(textsOf(exitAddresses.replaceAll('\n', '\r\n')), textsOf(exitAddresses));
  t.end();
});

t.test('one address is one exit, however often and in whatever spelling it is listed', (t) => {
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
    const exits = new TorExitList(parseExitList(listed, true).addresses);
    t.ok(
      spellings.every((asked) => exits.has(address(asked))),
      listed,
    );
    t.equal(exits.size, 1);
  }
  t.end();
});

t.test('what is no list of exits is refused, so that it never takes the place of one', (t) => {
  const page = '<!DOCTYPE html>\n<html><body>\n<p>198.51.100.9</p></body></html>\n';
  t.match(problemOf(page), /^line 1 /, 'an HTML page');
  t.match(problemOf(`${bulkList}<html>`), /^line 4 /, 'an HTML page behind a list');
  for (const empty of ['', '\n', '\r\n\r\n', '# nothing\n#\n', 'Published 2025-01-15 10:00:00\n']) {
    t.match(problemOf(empty), /holds no address/, JSON.stringify(empty));
  }
  t.match(problemOf('{"relays":[{"exit_addresses":["198.51.100.9"]}]}'), /^line 1 /, 'JSON');
  t.match(problemOf('\u0000\u0001\u0002'), /^line 1 /, 'bytes');
  t.end();
});

t.test('one line that is neither an address nor a line of the format refuses the list and is named by number', (t) => {
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
    t.match(problemOf(`${bulkList}${line}\n203.0.113.1\n`), /^line 4 /, line);
    t.match(problemOf(`# c\r\n\r\n${line}`), /^line 3 /);
  }
  t.notMatch(problemOf('svc_live_pasted'), /svc_/, 'the problem does not quote the line');
  t.end();
});

t.test('an exit line that was cut off before its time is refused: its address may have lost digits', (t) => {
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
  t.same(
    cuts.filter((line) => !problemOf(exitAddresses + line).startsWith('line 10 ')),
    [],
  );
  t.end();
});

t.test('addresses that are not on the public internet are left out and counted, unless they are allowed', (t) => {
  const reserved = [
    ...['10.0.0.1', '172.16.0.1', '192.168.1.1', '127.0.0.1', '169.254.1.1', '100.64.0.1', '0.0.0.0', '224.0.0.1'],
    ...['192.0.2.1', '198.51.100.1', '203.0.113.1', '240.0.0.1', '255.255.255.255', '::ffff:10.0.0.2'],
    ...['::', '::1', 'fe80::1', 'fc00::1', 'fd12::1', 'ff02::1', '2001:db8::1'],
  ];
  const list = ['8.8.8.8', ...reserved, '2606:4700::1111'].join('\n');
  const parsed = parseExitList(list, false);
  t.strictSame(
    parsed.addresses.map(({ text }) => text),
    ['8.8.8.8', '2606:4700::1111'],
  );
  t.equal(parsed.reserved, reserved.length);
  const all = parseExitList(list, true);
  t.equal(all.addresses.length, reserved.length + 2);
  t.equal(all.reserved, 0);
  t.match(problemOf(reserved.join('\n'), false), /holds no address/, 'a list of nothing else is refused');
  t.equal(problemOf(reserved.join('\n'), true), 'none');
  t.end();
});

t.test('a list that is longer than any list of exits could be is refused', (t) => {
  const lines = Array.from({ length: 200_001 }, (_, index) => `8.${index >> 16}.${(index >> 8) & 255}.${index & 255}`);
  t.match(problemOf(lines.join('\n')), /more than 200000 addresses/);
  t.equal(parseExitList(lines.slice(1).join('\n'), true).addresses.length, 200_000);
  t.end();
});

/** An address by its family and value alone, with the spellings that it has. */
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
        const exits = new TorExitList(parseExitList(list.map(({ text }) => text).join('\n'), true).addresses);
        if (exits.size !== identities.size) return false;
        return [...list, ...asked].every(({ identity, text }) => exits.has(address(text)) === identities.has(identity));
      },
    ),
    { numRuns: 500 },
  );
  t.end();
});

t.test('an IPv4 and an IPv6 address of the same value are two, and no list at all has no exits', (t) => {
  const four: IpAddress = address('0.0.0.5');
  const six: IpAddress = { family: 6, value: 5n, text: '::5' };
  t.notOk(new TorExitList([four]).has(six));
  t.notOk(new TorExitList([six]).has(four));
  t.equal(new TorExitList([four, six]).size, 2);
  t.equal(new TorExitList([]).size, 0);
  t.notOk(new TorExitList([]).has(four));
  t.end();
});

t.test('several list files are joined', async (t) => {
  const directory = t.testdir({ bulk: '198.51.100.1\n198.51.100.9\n', exits: exitAddresses });
  const at = (name: string): string => path.join(directory, name);
  const exits = await readTorExitFiles([at('bulk'), at('exits')], true);
  t.equal(exits.size, 4, 'one that both have counts once');
  for (const text of ['198.51.100.1', '198.51.100.9', '203.0.113.77', '2001:db8::5'])
    t.ok(exits.has(address(text)), text);
  t.notOk(exits.has(address('198.51.100.2')));
  t.equal((await readTorExitFiles([], true)).size, 0);
});

t.test(
  'a list file that cannot be used stops with a sentence that names it, whatever the other files hold',
  async (t) => {
    const directory = t.testdir({
      good: '198.51.100.9\n',
      page: '<html></html>',
      cut: '198.51.100.9\n198.51.1',
      empty: '',
      large: '198.51.100.9\n',
    });
    const at = (name: string): string => path.join(directory, name);
    await truncate(at('large'), 16 * 1024 * 1024 + 1);
    const rows: [string, boolean, RegExp][] = [
      [at('nowhere'), true, /^The Tor exit list .*nowhere cannot be read: there is no such file\.$/],
      [directory, true, /^The Tor exit list .* cannot be read: it is a directory\.$/],
      [at('page'), true, /^The Tor exit list .*page cannot be used: line 1 is neither .*\.$/],
      [at('cut'), true, /^The Tor exit list .*cut cannot be used: line 2 is neither .*\.$/],
      [at('empty'), true, /^The Tor exit list .*empty cannot be used: it holds no address .*\.$/],
      [at('good'), false, /^The Tor exit list .*good cannot be used: it holds no address .*\.$/],
      [at('large'), true, /^The Tor exit list .*large is larger than 16777216 bytes\.$/],
    ];
    for (const [file, allowReserved, sentence] of rows) {
      const error: unknown = await readTorExitFiles([at('good'), file], allowReserved).catch(
        (reason: unknown) => reason,
      );
      t.ok(error instanceof OperatorError, file.replace(directory, ''));
      t.match((error as Error).message, sentence);
    }
  },
);
