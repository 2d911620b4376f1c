import t from 'tap';
import { decodeEscapes } from '../../src/telemetry/escapes.js';
import { anyForm, cutAtKey, maskKeys } from '../../src/telemetry/mask-keys.js';
import { disguises, key, piecesOf, secret } from '../security/disguised-keys.js';

const intact = [
  'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36 Edg/120.0',
  'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.1 Safari/605',
  'PostmanRuntime/7.36.0; svc="live"; build=test_1',
  '/v1/svc-live-status',
  '/v1/svc-live-status/0123456789/transactions',
  '/v1/svc/live/transactions/01HF7Y2K9Q3M4N5P6R7S8T9V0W',
  '/v1/svc-test-7d4f8b9c6d-x2x9z',
  `/v1/svc-live-${'0123456789abcdef'.repeat(4)}`,
  '/v1/svc.live.TransactionStatusNotificationHandlerFactory',
  '/v1/svcLiveTransactionStatusNotification2HandlerFactory',
  '/v1/transactions/5f6c6976-655f-4e77-8352-696747354e56',
  '/v1/a%20b%26c&amp;d=5f&lowbar;e\\u005f\\137',
  '/v1/100%/%zz%',
  'svc live, the one of the till',
  'svc: live, test: not yet',
  'svc_live is the prefix of a key',
  'svc_lives_here_and_there',
  'svc_prod_0123456789',
  'OLD_SERVICE_LIVE_0123456789',
  'https://svc-live.example',
  String.raw`C:\svc\live\n_0123456789`.replace('_', ''),
  Buffer.from('svc and live_0123456789').toString('base64'),
  Buffer.from('svc and live_0123456789').toString('hex'),
  '203.0.113.9 is not in the IP allowlist of the merchant (ranges in the list: 3)',
  'svc_live_…',
];

t.test('an ordinary text stays, with escapes in it too', (t) => {
  for (const text of intact) {
    t.equal(cutAtKey(text), text);
    t.equal(maskKeys(text), text);
  }
  t.end();
});

t.test('a prefix counts as a key from the fifth character behind it', (t) => {
  for (const prefix of ['svc_live_', 'SVC_TEST_', 'svc&#95;live%5f', 'svc_-live_', String.raw`svc_li\u{76}e_`]) {
    for (const behind of ['', 'Nw5R', ' N w 5 R !']) t.equal(cutAtKey(`a ${prefix}${behind}`), `a ${prefix}${behind}`);
    for (const behind of ['Nw5Ri', ' N w 5 R i', '%4ew5Ri', '&#78;w5Ri']) {
      t.match(cutAtKey(`a ${prefix}${behind} b`), /^a (?:svc_live_|svc_test_)?…$/i, prefix + behind);
    }
  }
  t.end();
});

t.test('a text is cut where its first key begins, and what precedes stays as it was written', (t) => {
  for (const [how, disguise] of Object.entries(disguises)) {
    const cut = cutAtKey(`/a%20&amp;\\u00e9 ${disguise(key)} b`);
    t.match(cut, /^\/a%20&amp;\\u00e9 (?:svc_live_|[^ ]{0,3})?…$/i, how);
    t.same(
      piecesOf(disguise).filter((piece) => cut.toLowerCase().includes(piece)),
      [],
      how,
    );
    const second = `${disguise(`svc_test_${secret}`)} ${key}`;
    t.ok(cutAtKey(second).length <= 13, `${how}: the test key`);
    t.equal(cutAtKey(cut), cut, 'a cut text stays');
  }
  t.end();
});

t.test('escapes are decoded however often they are repeated, and know where they began', (t) => {
  for (const [written, text] of [
    ['&#95;&#x5F;&lowbar;&UnderBar;%5f%u005f=5F', '_______'],
    [String.raw`\u005f\u{5f}\U0000005f\x5f\x{5F}\137\0137\5f \00005f `, '_________'],
    [`&${'amp;'.repeat(200)}#95;`, '_'],
    [`%${'25'.repeat(200)}5F`, '_'],
    ['&bsol;u005f%26%2395%3B&#38;lowbar;', '___'],
    [String.raw`\n\09\0Ae\1fx`, ' \t\ne\u001fx'],
    ['&#99999999999; \\u{1f600}', '\ufffd \ufffd'],
    [`&#${'0'.repeat(300)}95;`, '_'],
    ['a&b;&;&#;&#x;%%zz%u00\\=\\q\\test', 'a&b;&;&#;&#x;%%zz%u00\\=\\q\\test'],
  ] as const) {
    t.equal(decodeEscapes(written).text, text, written);
  }
  t.same([...decodeEscapes('a%2541&amp;#66;c').origins], [0, 1, 6, 15]);
  t.end();
});

/** The latin1 characters that one item of a regular expression (a class, an escape or a single character) matches. */
const charactersOf = (item: string): string[] =>
  Array.from({ length: 256 }, (_, code) => String.fromCharCode(code)).filter((one) =>
    new RegExp(`^${item}$`, 's').test(one),
  );

// A search backtracks in a repetition only if the next item of the expression matches a character that the repetition
// also matches. This test checks that no next item does. So each gap between two letters or digits of a key matches in
// at most one way. A key has few gaps, so the search takes a limited number of steps from each position of a text.
t.test('a search takes linear time: nothing that follows a repetition is part of it', (t) => {
  const byteGap = '(?:00|0?[Xx]|[^0-9A-Za-z])*';
  const flat = anyForm.source.replaceAll(byteGap, '[^1-9A-WYZa-wyz]*').replaceAll(/\(\?=.*?\*(.*?)\)/g, '');
  const lookaheads = anyForm.source.match(/\(\?=[^)]*\)/g) ?? [];
  t.same([...new Set(lookaheads)], ['(?=[A-Za-z]*[0-9])', '(?=[0-9A-Fa-f]*[G-Zg-z])']);
  let repetitions = 0;
  for (const form of flat.split('|')) {
    const items = [
      ...form.replaceAll(/\(\?:|\)\{5\}/g, '').matchAll(/(\[[^\]]+\]|[^[*+?{}()])(\*|\{\d+(?:,\d+)?\})?/g),
    ];
    t.equal(items.map(([whole]) => whole).join(''), form.replaceAll(/\(\?:|\)\{5\}/g, ''), 'all of it is understood');
    for (const [at, [, item = '', repeated]] of items.entries()) {
      const next = items[at + 1]?.[1];
      if (repeated === undefined || next === undefined) continue;
      repetitions += 1;
      const following = new Set(charactersOf(next));
      t.same(
        charactersOf(item).filter((one) => following.has(one)),
        [],
        `${item}${repeated}${next}`,
      );
    }
  }
  t.ok(repetitions > 100);
  t.end();
});

t.test('the longest values of the worst kinds are searched to their end, and stay', (t) => {
  const pieces = ['%', '&', '\\', '=', '%25', '&amp;', '&#', '&#0', '&a', '\\u', '\\x{', '\\t', '\\0', '_', 's', 's_'];
  const more = ['svc', 'svc_', 'svc_live', '7 3 ', '73', '737663', '5 ', '00', '5f', 'c3Z ', 'N 2 ', 'svc-live-a1b2'];
  for (const piece of [...pieces, ...more]) {
    for (const before of ['', 'svc', 'svc_live', '7376635f6c', 'c3ZjX', 'svc-live-', '&#', '\\x{']) {
      const text = (before + piece.repeat(1024)).slice(0, 1024);
      t.equal(cutAtKey(text), text);
    }
  }
  t.end();
});
