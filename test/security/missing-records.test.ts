import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { AskInbox } from '../../src/adapters/redis/registry/ask-inbox.js';
import { readBytes } from '../../src/adapters/redis/calls.js';
import { MissingRecords } from '../../src/adapters/redis/gateway/missing-records.js';
import { RecordNames } from '../../src/adapters/redis/record-names.js';
import { noSeals, Seals } from '../../src/adapters/redis/seal.js';
import type { Standing } from '../../src/adapters/redis/gateway/standing.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { registryOnRedis, until } from '../registry/registry-on-redis.js';

/** An enrolled gateway, and the newest beat after which the registry knew that no record was missing. */
const standing = (vouchedBeat: number): Standing =>
  ({
    ...{ filling: null, generation: 'r_1', last: { generation: 'r_1', revision: 1, replicas: 0, asks: true } },
    lease: { enrolled: true, asks: true, vouchedBeat, beats: 1 },
  }) as unknown as Standing;

const unknown = (count: number): string => lookupIdOf(`svc_live_unknown_${count}`, null);

// After an eviction, or a DEL by hand, a good key was "Invalid API Key" without end.
t.test('a key whose record was deleted is accepted at once, held or not', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const ids = await insertKeys(registry, 120);
  await redis.client.del('mg:meta');
  const one = gateway('one');
  await until(async () => (await one.ask(ids[119] ?? '')) === 'accepted', 'all are written');
  await one.enrolled();
  await until(async () => (await one.ask(ids[119] ?? '')) === 'accepted', 'it holds what it reads');
  for (const id of ids.slice(0, 20)) t.equal(await one.ask(id), 'accepted');
  const names = ids.slice(0, 40).map((id) => `mg:key:${id}`);
  t.equal(await redis.client.del(...names, 'mg:merchant:m_0'), 41);
  const answers = await Promise.all(ids.slice(0, 40).map((id) => one.ask(id)));
  t.same([...new Set(answers)], ['accepted']);
  t.equal(await redis.client.exists(...names, 'mg:merchant:m_0'), 41, 'they are written again');
  t.equal(await one.ask(unknown(1)), '401', 'one that never was is unknown');
});

t.test('a gateway that starts after a deletion finds out', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  let registry = await start();
  const [id = '', other = ''] = await insertKeys(registry, 2);
  await redis.client.del('mg:meta');
  await until(async () => (await redis.client.exists(`mg:key:${id}`)) === 1, 'written');
  await until(async () => (await redis.client.get('mg:meta'))?.includes('"version":1') === true, 'complete');
  await registry.stop();
  await redis.client.del(`mg:key:${id}`);
  const one = gateway('one');
  await until(async () => (await one.ask(other)) === 'accepted', 'it is there');
  t.match(await one.ask(id), /^503 records may be missing/, 'while the registry is away');
  t.match(await one.ask(unknown(1)), /^503/, 'an unknown key as well');
  registry = await start();
  await until(async () => (await one.ask(id)) === 'accepted', 'the registry is back');
  await until(async () => (await one.ask(unknown(1))) === '401', 'nothing is missing');
});

t.test(
  'with the registry away, what was compared before stays unknown, and what was deleted since is 503',
  { skip: withoutRedis },
  async (t) => {
    const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
    const registry = await start();
    const ids = await insertKeys(registry, 10);
    await redis.client.del('mg:meta');
    const one = gateway('one');
    await until(async () => (await one.ask(ids[9] ?? '')) === 'accepted', 'all are written');
    await one.enrolled();
    await until(async () => ((await redis.client.get('mg:grant:one')) ?? '').includes('"compared":true'), 'compared');
    await wait(1_000);
    await registry.stop();
    t.equal(await one.ask(unknown(1)), '401');
    await redis.client.del(`mg:key:${ids[0]}`, `mg:key:${ids[9]}`);
    t.match(await one.ask(ids[0] ?? ''), /^503 records may be missing/, 'not held');
    t.match(await one.ask(ids[9] ?? ''), /^503 records may be missing/, 'held before');
    t.equal(await one.ask(unknown(2)), '401');
  },
);

t.test('evicted keys are never invalid', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const ids = await insertKeys(registry, 2_000);
  await redis.client.del('mg:meta');
  const one = gateway('one');
  await until(async () => (await one.ask(ids[1_999] ?? '')) === 'accepted', 'all are written');
  await one.enrolled();
  await redis.client.config('SET', 'maxmemory-policy', 'allkeys-random');
  const evict = async (): Promise<void> => {
    const used = Number(/^used_memory:(\d+)/m.exec(await redis.client.info('memory'))?.[1]);
    await redis.client.config('SET', 'maxmemory', String(used - 150_000));
    await redis.client.set('other', 'x');
    await redis.client.config('SET', 'maxmemory', '0');
  };
  await evict();
  const evicted = Number(/^evicted_keys:(\d+)/m.exec(await redis.client.info('stats'))?.[1]);
  t.ok(evicted > 20, `${evicted} were evicted`);
  const wrong: string[] = [];
  for (const end = Date.now() + 3_000; Date.now() < end;) {
    const answers = await Promise.all(ids.slice(0, 500).map((id) => one.ask(id)));
    wrong.push(...answers.filter((answer) => answer === '401'));
  }
  t.same(wrong, []);
  await until(
    async () => (await redis.client.exists(...ids.map((id) => `mg:key:${id}`))) === 2_000,
    'all are there again',
  );
  // What says that the store is complete may have been evicted as well.
  await until(
    async () => [...new Set(await Promise.all(ids.map((id) => one.ask(id))))].join() === 'accepted',
    'all are accepted',
  );
});

// Whoever can write to Redis could answer in the registry's place, and make a good key invalid.
t.test('an answer counts only under the seal of its own question', async (t) => {
  const seals = new Seals([Buffer.alloc(32, 1)]);
  const answer = JSON.stringify({ generation: 'r_1', isPresent: false });
  const answers: Readonly<Record<string, (question: string) => string>> = {
    unsealed: () => answer,
    'sealed by another secret': (question) => new Seals([Buffer.alloc(32, 2)]).seal(question, answer),
    'of another question': (question) => seals.seal(`${question}0`, answer),
    'of another generation': (question) =>
      seals.seal(question, JSON.stringify({ generation: 'r_0', isPresent: false })),
  };
  const textOf = (answerTo: (question: string) => string): Promise<string | null> =>
    new MissingRecords({
      link: {
        heard: () => Promise.resolve(),
        write: () => Promise.resolve(),
        text: (name) => Promise.resolve(answerTo(name)),
      },
      reads: { text: () => Promise.resolve(null) },
      standing: standing(-1),
      ...{ names: new RecordNames('mg:'), instanceId: 'one', seals },
    }).text(`mg:key:${unknown(1)}`);
  for (const [what, answerTo] of Object.entries(answers))
    await t.rejects(textOf(answerTo), { name: 'KeyStoreUnavailable', message: /does not say whether/ }, what);
  t.equal(await textOf((question) => seals.seal(question, answer)), null);
});

// Redis answers over one connection and sends its notices over another: the answer may come first.
t.test('that a record is not there counts only when every notice was heard', async (t) => {
  const name = `mg:key:${unknown(1)}`;
  for (const [what, happens] of [
    [
      'a notice comes behind the answer',
      (missing: MissingRecords) => {
        missing.changed([name]);
        return Promise.resolve();
      },
    ],
    ['nothing can be heard', () => Promise.reject(new Error('nothing can be heard'))],
    ['no notice comes', () => Promise.resolve()],
  ] as const) {
    const asked: string[] = [];
    const missing: MissingRecords = new MissingRecords({
      link: {
        heard: () => happens(missing),
        write: ({ name: question }) => Promise.resolve(void asked.push(question)),
        text: () => Promise.resolve(JSON.stringify({ generation: 'r_1', isPresent: false })),
      },
      reads: { text: () => Promise.resolve(null) },
      standing: standing(1),
      ...{ names: new RecordNames('mg:'), instanceId: 'one', seals: noSeals },
    });
    t.equal(await missing.text(name), null);
    t.equal(asked.length, what === 'no notice comes' ? 0 : 1, what);
  }
});

// A question that Redis refused ended as an internal error, and whoever has the key could have been served what is held.
t.test('a question that Redis refuses is a store that cannot be asked', async (t) => {
  const refused = (): Promise<never> =>
    Promise.reject(new Error("OOM command not allowed when used memory > 'maxmemory'."));
  const link = { heard: () => Promise.resolve(), write: () => Promise.resolve(), text: () => Promise.resolve('asked') };
  for (const change of [{ write: refused }, { text: refused }]) {
    const missing = new MissingRecords({
      ...{ link: { ...link, ...change }, reads: { text: () => Promise.resolve(null) } },
      standing: standing(-1),
      ...{ names: new RecordNames('mg:'), instanceId: 'one', seals: noSeals },
    });
    await t.rejects(missing.text(`mg:key:${unknown(1)}`), { name: 'KeyStoreUnavailable' });
  }
});

t.test(
  'what others write under the name of a question keeps nobody from an answer',
  { skip: withoutRedis },
  async (t) => {
    const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
    const registry = await start();
    const [id = ''] = await insertKeys(registry, 1);
    await redis.client.del('mg:meta');
    await until(async () => (await redis.client.get('mg:meta'))?.includes('"version":1') === true, 'complete');
    const pipeline = redis.client.pipeline();
    for (let number = 0; number < 3_000; number += 1)
      pipeline.set(`mg:ask:other:${number}:key:${unknown(number)}`, 'asked');
    for (const name of ['mg:ask:', 'mg:ask:one:1:key:x', `mg:ask:one:2:${'x'.repeat(100_000)}`])
      pipeline.lpush(name, 'asked');
    pipeline.set('mg:ask:one:3:merchant:', 'asked').set('mg:ask:../..:4:key:a', 'asked').del(`mg:key:${id}`);
    await pipeline.exec();
    const one = gateway('one');
    await until(async () => (await one.ask(id)) === 'accepted', 'a key is accepted');
    await until(async () => (await one.ask(unknown(9_999))) === '401', 'an unknown key is unknown');

    await redis.client.set('mg:ask:two:1:key:a', 'asked');
    const { client } = redis;
    const source = { read: readBytes.bind(null, client), write: () => Promise.resolve() };
    const inbox = new AskInbox('mg:ask:', noSeals, source);
    inbox.heard(['mg:ask:', 'mg:ask:one:1:key:x', 'mg:ask:two:1:key:a']);
    await until(() => inbox.take(10).some(({ record }) => record === 'key:a'), 'read beside what is no text');
  },
);
