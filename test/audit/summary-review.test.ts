import t from 'tap';
import type { AccessEntry } from '../../src/audit/access-entry.js';
import { SummaryBuilder } from '../../src/audit/summary/summary.js';
import { summaryHtml } from '../../src/audit/summary/summary-html.js';

const start = Date.parse('2026-11-20T10:00:00Z');

function entryOf(minutes: number, merchant: string, code: string): AccessEntry {
  return {
    '@timestamp': new Date(start + minutes * 60_000).toISOString(),
    event: { action: 'api-request', code },
    http: { request: {}, response: { status_code: 200 } },
    organization: { id: merchant },
    gateway: {},
  };
}

t.test('a summary lists the longest gaps between requests, longest first', (t) => {
  const summing = new SummaryBuilder();
  for (const minutes of [30, 0, 1, 3, 100]) summing.add(entryOf(minutes, 'm_a', 'accepted'));
  t.same(
    summing.end().silences.map(({ from, minutes }) => [from.slice(11, 16), minutes]),
    [
      ['10:30', 69],
      ['10:03', 26],
      ['10:01', 1],
    ],
  );
  t.end();
});

t.test('the series of rejections by reason covers all rejections of a long log', (t) => {
  for (const step of [1, 7, 60, 700]) {
    const summing = new SummaryBuilder();
    for (let index = 0; index < 5_000; index += 1) summing.add(entryOf(index * step, 'm_a', `code_${index % 9}`));
    const { denials, spans } = summing.end();
    t.equal(denials.series.length, 7, 'the six most frequent codes, and others');
    t.same(
      denials.spans.map(({ from, counts }) => [from, counts.reduce((sum, count) => sum + count, 0)]),
      spans.map(({ from, refused }) => [from, refused]),
    );
  }
  t.end();
});

t.test('a summary names each list that lacks values', (t) => {
  const summing = new SummaryBuilder();
  for (let index = 0; index < 101; index += 1) summing.add(entryOf(0, 'm_a', `code_${index}`));
  t.same(
    summing.end().incomplete,
    ['denials', 'unusualMerchants'],
    'too many codes in one minute, and of one merchant',
  );
  for (let index = 0; index < 1_001; index += 1) summing.add(entryOf(index, 'm_a', `code_${index}`));
  t.same(summing.end().incomplete, ['codes', 'denials', 'unusualMerchants']);
  const merchants = new SummaryBuilder();
  for (let index = 0; index < 20_000; index += 1) merchants.add(entryOf(index, `m_${index}`, 'key_inactive'));
  t.same(merchants.end().incomplete, []);
  merchants.add(entryOf(0, 'm_one_more', 'key_inactive'));
  t.same(merchants.end().incomplete, ['unusualMerchants']);
  t.end();
});

t.test('a merchant with far more rejections than others is listed with reasons, and its name is escaped', (t) => {
  const summing = new SummaryBuilder();
  for (let index = 0; index < 100; index += 1) {
    summing.add(entryOf(index, 'm_usual', index < 10 ? 'key_inactive' : 'accepted'));
    summing.add(entryOf(index, '<b>', index < 30 ? 'ip_not_allowed' : 'accepted'));
    if (index < 19) summing.add(entryOf(index, 'm_few', 'key_inactive'));
  }
  const summary = summing.end();
  t.same(summary.unusualMerchants, [], 'fewer than three times as many are not unusual');
  for (let index = 0; index < 300; index += 1) summing.add(entryOf(index, 'm_usual', 'accepted'));
  const { unusualMerchants } = summing.end();
  t.match(unusualMerchants, [
    { merchant: '<b>', refused: 30, requests: 100, share: 0.3, reasons: [{ value: 'ip_not_allowed', count: 30 }] },
  ]);
  const page = summaryHtml(summing.end(), null, 'a log');
  t.match(page, '<td>&lt;b&gt;</td>');
  t.notMatch(page, '<td><b></td>');
  const order = [
    'Not verified',
    'Longest times',
    'Refusals by reason',
    'Keys sent over plain',
    'unusual refusals',
    'Requests per',
  ];
  const places = order.map((heading) => page.indexOf(heading));
  t.notOk(places.includes(-1));
  t.same(
    places,
    places.toSorted((a, b) => a - b),
  );
  t.end();
});
