import t from 'tap';
import { KnownRecords } from '../../src/adapters/cache/known-records.js';
import { compileMerchantRecord } from '../../src/gateway/records.js';
import { KeyStoreUnavailable } from '../../src/gateway/key-store.js';
import { seededRecords } from './key-store-contract.js';

interface Value {
  readonly version: number;
  readonly list?: object;
  readonly more?: number;
}

const ids = (records: KnownRecords<Value>): string[] => [...records.entries()].map(([id]) => id);

t.test('dropped records are neither found, nor counted, nor listed, until they are read again', (t) => {
  const records = new KnownRecords<Value>(3);
  for (const id of ['a', 'b']) records.set(id, { version: 1 }, 5);
  records.dropAll();
  t.same([records.get('a'), records.peek('a'), records.has('a'), records.size], [undefined, undefined, false, 0]);
  t.same(ids(records), []);
  records.set('a', { version: 1 }, 6);
  t.match(records.get('a'), { value: { version: 1 }, readAt: 6 });
  t.same([ids(records), records.size], [['a'], 1]);
  records.delete('a');
  records.delete('b');
  t.same([ids(records), records.size, records.evictions], [[], 0, 0]);
  t.end();
});

t.test('a record that is read again keeps its object only if no member has changed', (t) => {
  const list = {};
  const former = { version: 1, list };
  for (const [current, isKept] of [
    [{ version: 1, list }, true],
    [{ version: 2, list }, false],
    [{ version: 1, list: {} }, false],
    [{ version: 1 }, false],
    [{ version: 1, list, more: 1 }, false],
  ] as const) {
    const records = new KnownRecords<Value>(3);
    records.set('a', former, 5);
    records.dropAll();
    records.set('a', current, 6);
    t.equal(records.get('a')?.value, isKept ? former : current);
  }
  const records = new KnownRecords<Value>(3);
  const failures = [new KeyStoreUnavailable('one'), new KeyStoreUnavailable('other')] as const;
  for (const failure of failures) records.set('a', failure, 5);
  t.equal(records.get('a')?.value, failures[1], 'an error never stands for another');
  t.end();
});

t.test('a merchant with another allowlist gets its new record, although a list hides its contents', (t) => {
  const record = Object.values(seededRecords).find((one) => 'goLive' in (one as object));
  const compile = (ipAllowlist: string[]) => compileMerchantRecord({ ...(record as object), ipAllowlist });
  const records = new KnownRecords<ReturnType<typeof compile>>(3);
  records.set('m', compile(['192.0.2.0/24']), 5);
  records.dropAll();
  const current = compile(['198.51.100.0/24']);
  records.set('m', current, 6);
  t.equal(records.get('m')?.value, current);
  t.end();
});

t.test('random changes: the numbers are those of the records, and the limit holds', (t) => {
  const records = new KnownRecords<Value>(8);
  const model = new Map<string, number>();
  let seed = 20_261_127;
  const random = (below: number): number => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
  for (let step = 0; step < 20_000; step += 1) {
    const id = String(random(14));
    const kind = random(40);
    if (kind === 0) {
      records.dropAll();
      model.clear();
    } else if (kind < 8) {
      records.delete(id);
      model.delete(id);
    } else {
      records.set(id, { version: step }, step);
      model.set(id, step);
    }
    const listed = [...records.entries()];
    const isTrue = listed.every(([one, value]) => model.get(one) === (value as Value).version);
    if (!isTrue || listed.length !== records.size || records.size > 8) {
      t.fail(`step ${step}: ${JSON.stringify(listed)}, ${records.size} records`);
      break;
    }
    for (const one of [...model.keys()]) if (!records.has(one)) model.delete(one); // evicted
  }
  t.ok(records.evictions > 1_000, `${records.evictions} evictions`);
  t.end();
});
