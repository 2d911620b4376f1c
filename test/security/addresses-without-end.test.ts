import t from 'tap';
import type { AccessEntry } from '../../src/audit/access-entry.js';
import { incompleteText, Summing } from '../../src/audit/summary.js';
import { summaryHtml } from '../../src/audit/summary-html.js';

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
t.test('a summary in which many addresses hide what came behind them says so', (t) => {
  const summing = new Summing();
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
  t.match(incompleteText(summary), 'are missing from: addresses, newAddresses.\n');
  t.match(summaryHtml(summary, 'a log'), 'are missing from: addresses, newAddresses.');
  t.end();
});
