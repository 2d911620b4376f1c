import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import type { AccessEntry } from '../../src/audit/access-entry.js';
import { ChainCheck, lineHashesOf } from '../../src/audit/chain-check.js';
import type { Finding } from '../../src/audit/finding.js';
import { parseSealedLine } from '../../src/audit/sealed-line.js';
import { summaryHtml } from '../../src/audit/summary/summary-html.js';
import { incompleteText, SummaryBuilder } from '../../src/audit/summary/summary.js';
import { parseStrictJson } from '../../src/json/strict-json.js';
import { resolveClientAddress } from '../../src/policy/client-address.js';
import { parseIpAddress } from '../../src/policy/ip-address.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';
import { namesOnionService } from '../../src/policy/origins.js';
import { compileOriginPatterns } from '../../src/policy/origin-patterns.js';
import { registryAuthor } from '../../src/registry/events/author.js';
import type { ChainPage } from '../../src/registry/events/chain.js';
import { recordEvents } from '../../src/registry/events/repository.js';
import { ask, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';
import { registryFixture, token } from '../registry/registry-fixture.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** An Origin as long as a request head allows. Parsing a non-ASCII character takes a third of a microsecond. */
const long = (start: string): string => start + '\u{bc}\u{c4}'.repeat(3_000);

// Regression: a client without a key could keep a worker fully busy with a few kilobytes of these origins per second.
t.test(
  'an origin that is slow to parse is rejected unparsed as an onion service; text after the host is not parsed',
  (t) => {
    const shop = 'https://shop.ex\u{e4}mple';
    const rejected: Record<string, readonly string[]> = {
      'a long name': [long('https://')],
      'a long name without a scheme': [long('')],
      'a long name after slashes': [long('https:///\\\t/')],
      'a long user': [`${long('https://')}@shop.example/`],
      'a long encoded name': [`https://${'%E4%B8%AD'.repeat(100)}/`],
      'a long name in punycode': [`https://${'xn--bcher-kva.'.repeat(50)}onions/`],
      'many names': [shop, 'https://sh\u{f6}p.example', 'https://sh%C3%B6p.example'],
      'one name 200 times': Array.from({ length: 200 }, () => shop),
    };
    for (const [what, values] of Object.entries(rejected)) t.ok(namesOnionService(values), what);
    const accepted: Record<string, readonly string[]> = {
      'a long path': [long(`${shop}/`)],
      'a long query': [long('https://shop.example?')],
      'a long fragment': [long('https://shop.example#')],
      'two names': [shop, 'https://sh%C3%B6p.example'],
      'many encoded paths': Array.from({ length: 200 }, () => 'https://shop.example/a%20b'),
      'many plain names': Array.from({ length: 200 }, () => 'https://shop.example'),
      'a long plain name': [`https://${'a'.repeat(5_000)}/`],
    };
    for (const [what, values] of Object.entries(accepted)) t.notOk(namesOnionService(values), what);
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
  const name = '\u{e4}\u{f6}\u{fc}'; // the same name in Unicode
  for (const [header, scheme] of [
    ['origin', 'https://'],
    ['referer', 'https://'],
    ['host', ''],
  ] as const) {
    t.ok(list.matches({ header, value: scheme + name }), header);
    t.notOk(
      list.matches({ header, value: scheme + '\u{ad}'.repeat(400) + name }),
      `${header}, with 400 soft hyphens, which are ignored`,
    );
  }
  t.end();
});

// In V8 a slice of a string keeps the whole string in memory. Regression: a client without a key made the gateway
// remember 10,000 entries. Each entry kept its whole header of 16 KB in memory.
t.test('remembered X-Forwarded-For entries do not keep the headers in which they arrived', (t) => {
  const proxies = compileIpRanges(['192.0.2.1']);
  const peer = parseIpAddress('192.0.2.1');
  if (peer === null) throw new Error('no address');
  const filling = 'a'.repeat(15_000);
  const clients = 2_000;
  collectGarbage();
  const before = process.memoryUsage().heapUsed;
  for (let client = 0; client < clients; client += 1) {
    const header = `${filling}${client}, 2001:db8:1234:5678:9abc:def0:1234:${client.toString(16)}`;
    t.ok(resolveClientAddress(peer, [Buffer.from(header).toString()], proxies));
  }
  collectGarbage();
  t.ok(process.memoryUsage().heapUsed - before < clients * 5_000);
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

// With quadratic parsing time each of these takes minutes, and the test fails at its time limit.
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

/** Checks a chain with these sequence numbers. Anybody could have written its lines: their hashes are invalid. */
function check(sequences: Iterable<number>): Finding[] {
  const findings: Finding[] = [];
  let chain: ChainCheck | null = null;
  let number = 0;
  for (const sequence of sequences) {
    number += 1;
    const text = `{"service":{"ephemeral_id":"${'A'.repeat(26)}"},"event":{"sequence":${sequence},"hash":"${'0'.repeat(64)}"}}`;
    const line = parseSealedLine(Buffer.from(text.replace('{"sequence"', '{"id":"x","sequence"')));
    if (line === null) throw new Error('not a line of a chain');
    chain ??= new ChainCheck(line, lineHashesOf([]), (finding) => {
      findings.push(finding);
    });
    chain.check(line, { file: 'access.log', line: number });
  }
  return findings;
}

// A gap is a range of missing sequence numbers. A line within a gap splits it in two, and each line is looked up in the
// list of all gaps. If this list had no bound, a forged log could make its verification last for hours. The last line
// of each log repeats an earlier line. The second log has more gaps than the list can hold, so the verifier does not
// recognise the repeat.
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
  // The last gap was dropped from the list; all others are still in it.
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

// A merchant can own a whole network of addresses. Regression: addresses after the first hundred thousand were missing
// from every list, and nothing reported it.
t.test('an audit summary with more addresses than it can hold reports itself as incomplete', (t) => {
  const summing = new SummaryBuilder();
  const many = (count: number): void => {
    for (let index = 0; index < count; index += 1) summing.add(entryOf(`2001:db8::${index.toString(16)}`, 'key_many'));
  };
  many(100_000);
  summing.add(entryOf('2001:db8::7', 'key_many'));
  const full = summing.end();
  t.same([full.incomplete, incompleteText(full)], [[], ''], 'all entries fit');

  summing.add(entryOf('192.0.2.66', 'key_stolen', 'ip_not_allowed'));
  const summary = summing.end();
  t.same(summary.incomplete, ['addresses', 'newAddresses']);
  t.match(
    incompleteText(summary),
    /^The log has .*, so these lists are incomplete: addresses, newAddresses\. Values .* are not counted\.\n$/,
  );
  t.match(
    summaryHtml(summary, null, 'a log'),
    'too many distinct values, so these lists are incomplete: addresses, newAddresses.',
  );
  t.end();
});

// A merchant's member can store events with two full allowlists each. Regression: 500 of them made a page of 300 MB.
t.test('a page of the chain of events is bounded, however large the events are', async (t) => {
  const { app, database } = await registryFixture(t, 'sqlite::memory:');
  const state = { text: 'a'.repeat(300 * 1024) };
  const event = { action: 'merchant.changed', merchantId: 'm_1', keyId: null, before: state, after: state } as const;
  const events = Array.from({ length: 60 }, () => event);
  await database
    .transaction()
    .execute((transaction) => recordEvents(transaction, events, { at: 0, author: registryAuthor, revision: 1 }));
  const end = await database.selectFrom('event_tail').select('position').executeTakeFirstOrThrow();
  const all = Array.from({ length: end.position }, (_, index) => index + 1);
  await database
    .insertInto('event_checkpoints')
    .values(all.map((position) => ({ position, signed_at: 0, note: 'a note' })))
    .execute();
  const read = async (after: number): Promise<ChainPage> => {
    const url = `/events/chain/rows?after=${after}`;
    const response = await app.inject({ url, headers: { authorization: `Bearer ${token}` } });
    t.ok(response.rawPayload.length < 16 * 1024 * 1024, `${response.rawPayload.length} bytes`);
    return response.json<{ data: ChainPage }>().data;
  };
  const pages: ChainPage[] = [];
  for (let after: number | null = 0; after !== null; after = pages.at(-1)?.next ?? null) pages.push(await read(after));
  t.same(
    pages.flatMap((page) => page.events.map(({ position }) => position)),
    all,
    'each position is on one page',
  );
  for (const page of pages)
    t.same(
      page.checkpoints.map(({ position }) => position),
      page.events.map(({ position }) => position),
      'with the checkpoints of its positions',
    );
});
