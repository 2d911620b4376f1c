import t from 'tap';
import { ExposedKeys } from '../../src/gateway/exposed-keys.js';
import { KeyStoreUnavailable, type KeyLookup, type RecordSource } from '../../src/gateway/key-store.js';
import type { RecordRead, Records } from '../../src/gateway/record-key-store.js';
import { RecordKeyStore } from '../../src/gateway/record-key-store.js';
import type { CompiledKey, CompiledMerchant } from '../../src/gateway/records.js';
import { acceptingCredential } from '../policy/fixtures.js';

/** A credential from a key record and a merchant record that both have revision 1. */
const credential = { ...acceptingCredential('live'), keyRevision: 1, merchantRevision: 1 };
const unknown: KeyLookup = { credential: null, source: 'store', ageMilliseconds: 0 };

type How = readonly [source: RecordSource, ageMilliseconds: number];

/** Returns records in which the record of the key and that of the merchant have these sources and ages. */
function recordsFound(key: How, merchant: How): Records {
  const read = ([source, ageMilliseconds]: How): RecordRead<CompiledKey & CompiledMerchant> => ({
    record: { ...credential, revision: 1 },
    source,
    ageMilliseconds,
  });
  return {
    key: () => read(key),
    merchant: () => read(merchant),
    knowsKey: () => true,
    unavailableReason: () => null,
    recordStats: () => null,
    close: () => Promise.resolve(),
  };
}

t.test('a credential has the worse source and age of its two records', async (t) => {
  const rows: readonly (readonly [How, How, How])[] = [
    [
      ['store', 0],
      ['store', 0],
      ['store', 0],
    ],
    [
      ['cache', 70],
      ['store', 0],
      ['cache', 70],
    ],
    [
      ['store', 0],
      ['cache', 70],
      ['cache', 70],
    ],
    [
      ['stale', 9000],
      ['store', 0],
      ['stale', 9000],
    ],
    [
      ['store', 0],
      ['stale', 9000],
      ['stale', 9000],
    ],
    [
      ['cache', 70],
      ['stale', 9000],
      ['stale', 9000],
    ],
    [
      ['stale', 9000],
      ['cache', 70],
      ['stale', 9000],
    ],
  ];
  for (const [key, merchant, [source, ageMilliseconds]] of rows) {
    const result = await new RecordKeyStore(recordsFound(key, merchant)).find('any');
    t.strictSame(result, { credential, source, ageMilliseconds }, `${key[0]} and ${merchant[0]}`);
  }
});

/** Creates an `ExposedKeys` whose look-ups wait in `asked` until the test resolves or fails them. */
function setUp() {
  const clock = { milliseconds: 7_000_000, now: () => clock.milliseconds };
  const asked: { resolve: (lookup: KeyLookup) => void; fail: (error: Error) => void }[] = [];
  const find = () => new Promise<KeyLookup>((resolve, fail) => asked.push({ resolve, fail }));
  return { clock, asked, exposed: new ExposedKeys({ find }, clock) };
}

t.test(
  'at most 16 keys of refused requests are looked up at once, further ones only when one of them has ended',
  async (t) => {
    const { asked, exposed } = setUp();
    const finds = Array.from({ length: 16 }, () => exposed.find('any'));
    t.equal(await exposed.find('any'), null);
    t.equal(asked.length, 16);
    asked[0]?.fail(new KeyStoreUnavailable('away'));
    t.equal(await finds[0], null, 'an outage is not an error: the line has no owner');
    asked[1]?.fail(new TypeError('a defect'));
    await t.rejects(
      async () => {
        await finds[1];
      },
      TypeError,
      'a defect is an error',
    );
    asked[2]?.resolve(unknown);
    t.equal(await finds[2], unknown);
    void Array.from({ length: 4 }, () => exposed.find('any'));
    t.equal(asked.length, 19, 'each look-up that ended made room for another one');
  },
);

t.test('at most 100 keys of refused requests are looked up per second; the next second allows 100 more', async (t) => {
  const { clock, asked, exposed } = setUp();
  for (const second of [1, 2]) {
    for (let count = 0; count < 150; count += 1) {
      const found = exposed.find('any');
      asked.at(-1)?.resolve(unknown);
      t.equal(await found, count < 100 ? unknown : null);
      if (count === 120) clock.milliseconds += 999;
    }
    t.equal(asked.length, 100 * second);
    clock.milliseconds += 1;
  }
});
