import t from 'tap';
import type { AccessEntry } from '../../src/audit/access-entry.js';
import { ChainCheck, lineHashesOf } from '../../src/audit/chain-check.js';
import type { Finding } from '../../src/audit/finding.js';
import { parseSealedLine } from '../../src/audit/sealed-line.js';
import { summaryHtml } from '../../src/audit/summary/summary-html.js';
import { incompleteText, SummaryBuilder } from '../../src/audit/summary/summary.js';
import { parseStrictJson } from '../../src/json/strict-json.js';
import { compileOriginPatterns, namesOnionService } from '../../src/policy/origins.js';
import { ask, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';

/** As an Origin of a head that is as long as it may be. What is no plain ASCII takes a third of a microsecond a character. */
const long = (start: string): string => start + '\u{bc}\u{c4}'.repeat(3_000);

// Without any key: a few kilobytes a second of such values took all of a worker's time.
t.test(
  'an origin that is slow to parse is rejected unparsed as an onion service; text after the host is not parsed',
  (t) => {
    const shop = 'https://shop.ex\u{e4}mple';
    const refused: Record<string, readonly string[]> = {
      'a long name': [long('https://')],
      'a long name without a scheme': [long('')],
      'a long name behind slashes': [long('https:///\\\t/')],
      'a long user': [`${long('https://')}@shop.example/`],
      'a long encoded name': [`https://${'%E4%B8%AD'.repeat(100)}/`],
      'a long name in punycode': [`https://${'xn--bcher-kva.'.repeat(50)}onions/`],
      'many names': [shop, 'https://sh\u{f6}p.example', 'https://sh%C3%B6p.example'],
      'one name often': Array.from({ length: 200 }, () => shop),
    };
    for (const [what, values] of Object.entries(refused)) t.ok(namesOnionService(values), what);
    const taken: Record<string, readonly string[]> = {
      'a long path': [long(`${shop}/`)],
      'a long query': [long('https://shop.example?')],
      'a long fragment': [long('https://shop.example#')],
      'two names': [shop, 'https://sh%C3%B6p.example'],
      'many encoded paths': Array.from({ length: 200 }, () => 'https://shop.example/a%20b'),
      'many plain names': Array.from({ length: 200 }, () => 'https://shop.example'),
      'a long plain name': [`https://${'a'.repeat(5_000)}/`],
    };
    for (const [what, values] of Object.entries(taken)) t.notOk(namesOnionService(values), what);
    t.end();
  },
);

t.test('truncating an origin to its host hides no onion service', (t) => {
  const onion = 'abc.on\u{ad}ion';
  for (const value of [
    ...[
      `https://${onion}`,
      `https://${onion}/`,
      `https:////${onion}/a`,
      `https://\\\t/${onion}\\a`,
      `https://${onion}?://`,
    ],
    ...[
      ` https://${onion}#a`,
      `${onion}/a`,
      `${onion}?a`,
      `a:b@${onion}:8443/`,
      `https://a:@b@${onion}`,
      `htt\tps://${onion}`,
    ],
    ...['https://443 /a.onion', 'foo://a.onion/b', 'foo://a b/c.onion'],
  ]) {
    t.ok(namesOnionService([value]), JSON.stringify(value));
  }
  t.end();
});

t.test('a host name of impossible length matches no allowlist', (t) => {
  const list = compileOriginPatterns(['xn--4ca0bs']);
  const name = '\u{e4}\u{f6}\u{fc}'; // the same
  for (const [header, scheme] of [
    ['origin', 'https://'],
    ['referer', 'https://'],
    ['host', ''],
  ] as const) {
    t.ok(list.matches({ header, value: scheme + name }), header);
    t.notOk(
      list.matches({ header, value: scheme + '\u{ad}'.repeat(400) + name }),
      `${header}, with much that is not read`,
    );
  }
  t.end();
});

t.test('an origin that is slow to parse gets the Tor error, before the key is checked', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const key = ['x-api-key', liveKey] as const;
  for (const header of ['origin', 'referer']) {
    const { status, body } = await ask(gateway, { headers: [key, [header, long('https://')]] });
    t.strictSame([status, body], [401, '{"success":false,"message":"Tor traffic is not allowed","data":null}'], header);
    const one = [header, 'https://sh\u{f6}p.example'] as const;
    t.equal((await ask(gateway, { headers: [key, one, one, one] })).status, 401, `${header} three times`);
    t.equal((await ask(gateway, { headers: [key, one, one] })).status, 200, `${header} twice`);
  }
  t.equal(
    (await ask(gateway, { headers: [key, ['referer', long('https://shop.example/')]] })).status,
    200,
    'a long path',
  );
});

// Where the time grows with the square of the length, each of these takes minutes, and the test fails by its time limit.
t.test('a body that is one long number does not block the event loop', (t) => {
  const zeros = '0'.repeat(1_000_000);
  const problem = { message: /^too-precise / };
  for (const number of [`1.${zeros}1`, `0.${zeros}1`]) {
    t.throws(() => parseStrictJson(`{"amount":${number}}`), problem, number.slice(0, 4));
  }
  t.same(parseStrictJson(`{"amount":7.${zeros}}`), { amount: 7 });
  t.same(parseStrictJson(`{"amount":7${'0'.repeat(20)}e-20}`), { amount: 7 });
  t.end();
});

/** Reads a chain of these numbers, whose lines anybody could have made. */
function check(sequences: Iterable<number>): Finding[] {
  const findings: Finding[] = [];
  let chain: ChainCheck | null = null;
  let number = 0;
  for (const sequence of sequences) {
    number += 1;
    const text = `{"service":{"ephemeral_id":"${'A'.repeat(26)}"},"event":{"sequence":${sequence},"hash":"${'0'.repeat(64)}"}}`;
    const line = parseSealedLine(Buffer.from(text.replace('{"sequence"', '{"id":"x","sequence"')));
    if (line === null) throw new Error('no line of a chain');
    chain ??= new ChainCheck(line, lineHashesOf([]), (finding) => {
      findings.push(finding);
    });
    chain.check(line, { file: 'access.log', line: number });
  }
  return findings;
}

// Each line within a gap makes two of it, and each is looked for among all. Whoever could write a log could have a verification of
// it last for hours. That gaps are forgotten shows in the last line: it is no more known to be there twice.
t.test('log lines that split a gap many times take bounded memory in the verifier', (t) => {
  const few = Array.from({ length: 900 }, (_, index) => 2 * index + 4);
  t.match(check([1, 50_000, ...few, 4]).at(-1), { kind: 'repeated' });
  const many = Array.from({ length: 1_100 }, (_, index) => 2 * index + 4);
  const findings = check([1, 50_000, ...many, 4]);
  t.equal(findings.filter(({ kind }) => kind === 'reordered').length, 1_101);
  t.end();
});

t.test('when the gap list overflows, no line is wrongly reported as repeated', (t) => {
  const gaps = Array.from({ length: 1_001 }, (_, index) => 3 * index + 4);
  // Of the last gap nothing is remembered, and of the others all.
  const findings = check([1, ...gaps, 3_002, 3_000]);
  t.same(
    findings.slice(1_001).map(({ kind }) => kind),
    ['reordered', 'reordered'],
  );
  t.end();
});

t.test('a changed sequence number after the last gap does not use up the other gaps', (t) => {
  const gaps = Array.from({ length: 1_000 }, (_, index) => 3 * index + 4);
  const next = 3_002;
  const findings = check([1, ...gaps, 9_000, next + 1, 3_000]);
  t.match(findings.slice(1_000), [
    { kind: 'edited', line: 1_002 },
    { kind: 'edited', line: 1_003 },
    { kind: 'reordered', line: 1_004 },
  ]);
  t.end();
});

function entryOf(address: string, key: string, code = 'accepted'): AccessEntry {
  return {
    '@timestamp': '2026-11-20T10:00:00.000Z',
    event: { action: 'api-request', code },
    http: { request: {}, response: { status_code: 200 } },
    client: { ip: address },
    gateway: { key: { id: key } },
  };
}

// One merchant has a network of addresses: whatever came behind a hundred thousand of them was in no list, without a word.
t.test('an audit summary with more addresses than it can hold reports itself as incomplete', (t) => {
  const summing = new SummaryBuilder();
  const many = (count: number): void => {
    for (let index = 0; index < count; index += 1) summing.add(entryOf(`2001:db8::${index.toString(16)}`, 'key_many'));
  };
  many(100_000);
  summing.add(entryOf('2001:db8::7', 'key_many'));
  const full = summing.end();
  t.same([full.incomplete, incompleteText(full)], [[], ''], 'everything has its place');

  summing.add(entryOf('192.0.2.66', 'key_stolen', 'ip_not_allowed'));
  const summary = summing.end();
  t.same(summary.incomplete, ['addresses', 'newAddresses']);
  t.match(incompleteText(summary), 'are missing from these lists: addresses, newAddresses.\n');
  t.match(summaryHtml(summary, null, 'a log'), 'are missing from these lists: addresses, newAddresses.');
  t.end();
});
