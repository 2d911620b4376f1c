import t from 'tap';
import { withoutRedis } from '../adapters/redis-server.js';
import { registryOnRedis, until } from './registry-on-redis.js';

// After FLUSHALL every key that no gateway held was 503 until the last record was written: for seconds, with ten thousand keys.
t.test('an emptied store serves at once what gateways ask for', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const ids = await insertKeys(registry, 10_000);
  await redis.client.del('mg:meta');
  const one = gateway('one');
  const meta = async (): Promise<string> => (await redis.client.get('mg:meta')) ?? '';
  const isComplete = async (): Promise<boolean> => (await meta()).includes('"version":1');
  await until(async () => (await redis.client.dbsize()) > 10_000 && (await isComplete()), 'all are written');
  await one.enrolled();
  await redis.client.flushall();
  const seen = new Set<string>();
  let whileFilling = 0;
  const accepted = async (id: string): Promise<void> => {
    for (;;) {
      const answer = await one.ask(id);
      seen.add(answer.slice(0, 3));
      if (answer === 'accepted') break;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    if ((await meta()).includes('"filling":true')) whileFilling += 1;
  };
  await Promise.all(ids.slice(0, 1_000).map(accepted));
  t.ok(whileFilling > 0, `${whileFilling} of 1,000 keys were accepted before all was written`);
  t.notOk(seen.has('401'), 'an outage never looks like a bad key');
  await until(isComplete, 'it is completed');
  await until(async () => (await one.ask(ids[9_999] ?? '')) === 'accepted', 'all are there');
});

t.test('what a registry that ended has not written is written by the next one', { skip: withoutRedis }, async (t) => {
  const { redis, start, insertKeys, gateway } = await registryOnRedis(t);
  const registry = await start();
  const ids = await insertKeys(registry, 10_000);
  const meta = async (): Promise<string> => (await redis.client.get('mg:meta')) ?? '';
  await redis.client.del('mg:meta');
  await until(async () => (await meta()).includes('"version":1'), 'all are written');
  const one = gateway('one');
  await one.enrolled();
  await redis.client.flushall();
  await until(async () => (await meta()).includes('"filling":true'), 'it is filled');
  await registry.stop();
  const left = ids.slice(-200);
  if ((await meta()).includes('"filling":true')) {
    const answers = new Set((await Promise.all(left.map((id) => one.ask(id)))).map((answer) => answer.slice(0, 3)));
    t.notOk(answers.has('401'), [...answers].join());
  }
  await start();
  for (const id of left) await until(async () => (await one.ask(id)) === 'accepted', 'all are accepted');
  await until(async () => (await meta()).includes('"version":1'), 'it is completed');
});
