import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RecordCache } from '../../src/adapters/cache/record-cache.js';
import { AheadReader } from '../../src/adapters/redis/gateway/ahead-reader.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import type { CompiledKey, CompiledMerchant } from '../../src/gateway/records.js';

// Records that nobody has asked for are read in the background. A key that is revoked while its record is on its way must not be
// held as it was, nor one that comes from a server that is no longer believed: nobody would notice until the next change.

const limits = {
  ...{ maxEntries: 9, maxAgeMilliseconds: 60_000, unknownMaxEntries: 9, unknownMaxAgeMilliseconds: 60_000 },
  maxStaleMilliseconds: 30_000,
};
const ids = ['a', 'b'].map((letter) => letter.repeat(64));
const [a = '', b = ''] = ids;

// The reader rests on timers that keep no process alive.
const alive = setInterval(() => undefined, 1_000);
t.teardown(() => {
  clearInterval(alive);
});

function setUp() {
  const hearing = { fresh: true, sinceKnownTrue: 0, staleMilliseconds: 30_000, catchUp: () => Promise.resolve() };
  const standing = { fresh: true, proof: 1 as number | null };
  const keys = new RecordCache<CompiledKey>(limits, hearing, () => Promise.resolve(null));
  const merchants = new RecordCache<CompiledMerchant>(limits, hearing, () => Promise.resolve(null));
  const reads: { names: readonly string[]; answer: (texts: readonly (string | null | undefined)[]) => void }[] = [];
  const compile = (_id: string, text: string) => ({ merchantId: 'm_1', keyStatus: text, revision: 1 });
  const reader = new AheadReader({
    link: {
      names: () => {
        throw new Error('nobody looks at all of them');
      },
      readSome: (names) =>
        new Promise((answer) => {
          reads.push({ names, answer });
        }),
    },
    ...{ standing, names: new RecordNames(''), environment: 'live', keys, merchants, maxEntries: 9 },
    onSeen: () => undefined,
    compileKey: (name, text) => ({ ...compile(name, text), environment: 'live' }) as CompiledKey,
    compileMerchant: (id, text) => compile(id, text) as unknown as CompiledMerchant,
  });
  const asked = async (count: number): Promise<void> => {
    while (reads.length < count) await wait(1);
  };
  const statusOf = (id: string): string | undefined => (keys.peek(id) as CompiledKey | undefined)?.keyStatus;
  return { hearing, standing, keys, reads, reader, asked, statusOf };
}

t.test('what was read before a change and arrives after its notice is not held', async (t) => {
  const { keys, reads, reader, asked, statusOf } = setUp();
  const reading = reader.readKeys(ids);
  await asked(1);
  keys.drop([a]);
  reads[0]?.answer(['ACTIVE', 'ACTIVE']);
  await asked(2);
  reads[1]?.answer([null]);
  await reading;
  t.equal(statusOf(a), undefined);
  t.equal(statusOf(b), 'ACTIVE', 'but what was not changed');
  keys.drop([b]);
  t.equal(statusOf(b), undefined, 'until it is');
});

const ends: Readonly<Record<string, (of: ReturnType<typeof setUp>) => void>> = {
  'everything was dropped': ({ keys }) => {
    keys.dropAll();
  },
  'nothing could be heard for a moment': ({ keys }) => {
    keys.becomeStale();
  },
  'no beat has come for a while': ({ hearing }) => {
    hearing.fresh = false;
  },
};

for (const [what, happens] of Object.entries(ends)) {
  t.test(`nothing is held that was read when ${what}`, async (t) => {
    const of = setUp();
    const reading = of.reader.readKeys(ids);
    await of.asked(1);
    happens(of);
    of.reads[0]?.answer(['ACTIVE', 'ACTIVE']);
    await reading;
    t.same(ids.map(of.statusOf), [undefined, undefined]);
    t.equal(of.reader.waiting, 2, 'it is read again');
  });
}

t.test('nothing is held of a server that is no longer believed, and it is read again', async (t) => {
  for (const proof of [2, null]) {
    const { standing, reads, reader, asked, statusOf } = setUp();
    const reading = reader.readKeys(ids);
    await asked(1);
    standing.proof = proof;
    reads[0]?.answer(['ACTIVE', 'ACTIVE']);
    await t.rejects(reading, /another server/);
    t.same(ids.map(statusOf), [undefined, undefined]);
    t.equal(reader.waiting, 2);
  }
});

t.test('what nothing can be said about, as in a slot that lacks a change, waits', async (t) => {
  const { reads, reader, asked, statusOf } = setUp();
  const reading = reader.readKeys(ids);
  await asked(1);
  reads[0]?.answer([undefined, null]);
  await reading;
  t.same(ids.map(statusOf), [undefined, undefined]);
  t.equal(reader.waiting, 1);
});

t.test('nothing is read while changes are not heard', async (t) => {
  for (const not of [{ fresh: false }, { proof: null }]) {
    const { standing, reads, reader, asked } = setUp();
    Object.assign(standing, not);
    const reading = reader.readKeys([a]);
    await wait(250);
    t.equal(reads.length, 0);
    Object.assign(standing, { fresh: true, proof: 1 });
    await asked(1);
    reads[0]?.answer([null]);
    await reading;
  }
});

t.test('what is held stays as it is, and as near to having to go', async (t) => {
  const { keys, reads, reader, asked, statusOf } = setUp();
  const first = reader.readKeys([a]);
  await asked(1);
  reads[0]?.answer(['REVOKED']);
  await asked(2);
  reads[1]?.answer([null]);
  await first;
  const ahead = keys.readAhead();
  t.ok(keys.holdAhead(ahead, a, { keyStatus: 'ACTIVE' } as CompiledKey));
  t.equal(statusOf(a), 'REVOKED');
  for (let count = 1; count < limits.maxEntries; count += 1)
    t.ok(keys.holdAhead(ahead, String(count), { keyStatus: 'ACTIVE' } as CompiledKey));
  t.notOk(keys.holdAhead(ahead, b, { keyStatus: 'ACTIVE' } as CompiledKey));
  t.ok(keys.holdAhead(ahead, a, { keyStatus: 'ACTIVE' } as CompiledKey), 'what is held needs no room');
  t.equal(statusOf(a), 'REVOKED');
  t.equal(keys.figures.known.evictions, 0);
});
