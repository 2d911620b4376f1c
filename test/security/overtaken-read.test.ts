import t from 'tap';
import { RecordCache } from '../../src/adapters/cache/record-cache.js';
import { KeyStoreUnavailable } from '../../src/gateway/ports.js';

// A key is changed twice while its record is being read. The end of the first read, well or not, must not make the second
// one be forgotten: the second notice would then find nothing to drop, and what was read before it, a key that is revoked
// by now, would be held and let in.

type Value = { readonly status: string } | null;

const limits = {
  ...{ maxEntries: 9, maxAgeMilliseconds: 60_000, unknownMaxEntries: 9, unknownMaxAgeMilliseconds: 60_000 },
  maxStaleMilliseconds: 30_000,
};

function setUp() {
  const hearing = { fresh: true, sinceKnownTrue: 0, catchUp: () => Promise.resolve() };
  const reads: { answer: (value: Value) => void; fail: (error: Error) => void }[] = [];
  const read = () => new Promise<Value>((answer, fail) => reads.push({ answer, fail }));
  return { cache: new RecordCache<NonNullable<Value>>(limits, hearing, read), hearing, reads };
}

const ends: readonly [string, (read: ReturnType<typeof setUp>['reads'][number] | undefined) => void][] = [
  ['was answered', (read) => read?.answer({ status: 'ACTIVE' })],
  ['was answered that there is none', (read) => read?.answer(null)],
  ['failed', (read) => read?.fail(new KeyStoreUnavailable('away'))],
];

for (const [how, end] of ends) {
  t.test(`what was read before a notice is not held, though an older read ${how} meanwhile`, async (t) => {
    const { cache, reads } = setUp();
    const first = Promise.resolve(cache.get('key')).catch(() => null);
    cache.drop(['key']);
    const second = cache.get('key');
    end(reads[0]);
    await first;
    cache.drop(['key']);
    reads[1]?.answer({ status: 'ACTIVE' });
    t.match(await second, { record: { status: 'ACTIVE' } }, 'who asked before the change may see what was');
    const third = cache.get('key');
    t.equal(reads.length, 3, 'and nobody else');
    reads[2]?.answer({ status: 'REVOKED' });
    t.match(await third, { record: { status: 'REVOKED' }, source: 'store' });
    t.match(await cache.get('key'), { record: { status: 'REVOKED' }, source: 'cache' });
  });
}

t.test('what arrives while nothing can be believed is not held until something can', async (t) => {
  const { cache, hearing, reads } = setUp();
  const first = cache.get('key');
  hearing.fresh = false; // no beat has come for a while, and no notice says so
  reads[0]?.answer({ status: 'ACTIVE' });
  t.match(await first, { record: { status: 'ACTIVE' }, source: 'store' });
  hearing.fresh = true;
  const second = cache.get('key');
  reads[1]?.answer({ status: 'REVOKED' });
  t.match(await second, { record: { status: 'REVOKED' }, source: 'store' });
});
