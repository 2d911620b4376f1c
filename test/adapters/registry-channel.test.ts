import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { RedisChannel } from '../../src/adapters/redis/channel/redis-channel.js';
import { RedisInbox } from '../../src/adapters/redis/channel/redis-inbox.js';
import { Seals } from '../../src/adapters/redis/seal.js';
import { until } from './redis-cluster.js';
import { plainRedis, startRedis, withoutRedis } from './redis-server.js';

const secret = Buffer.alloc(32, 7);
const stream = 'mg:messages';

/** Both ends of a channel over one Redis. The registry serves from the first `serve` call on. */
async function openChannel(t: Test, failingMilliseconds = 60_000, seals = new Seals([secret])) {
  const redis = await startRedis(t);
  const address = plainRedis(redis.url);
  const channel = new RedisChannel(address, 'mg:', seals);
  const [refused, failures] = [[] as string[], [] as unknown[]];
  const events = {
    onRefused: (why: string) => void refused.push(why),
    onFailure: (error: unknown) => void failures.push(error),
    onLongReply: (kind: string) => void refused.push(`long reply: ${kind}`),
  };
  const inbox = new RedisInbox(address, 'mg:', seals, events, undefined, failingMilliseconds);
  t.teardown(() => Promise.all([channel.close(), inbox.close()]));
  const connected = async () => String(await redis.client.client('LIST')).match(/ cmd=(?!NULL)/g)?.length ?? 0;
  while ((await connected()) < 3) await wait(20);
  // Gives the clients time to read their first replies. Ten short waits, because a pause of the whole process can use
  // up one wait.
  for (let turn = 0; turn < 10; turn += 1) await wait(10);
  return { channel, failures, inbox, redis, refused };
}

t.test('a message gets its reply, and nothing remains of it', { skip: withoutRedis }, async (t) => {
  const { channel, inbox, redis, refused } = await openChannel(t);
  inbox.serve({ echo: (body) => Promise.resolve(`${body}!`) });
  t.same(await Promise.all(['a', 'b', 'c "\n☂'].map((body) => channel.send({ kind: 'echo', body }))), [
    'a!',
    'b!',
    'c "\n☂!',
  ]);
  // A message is deleted after its reply has been written.
  await until(async () => (await redis.client.xlen(stream)) === 0, 'nothing remains');
  t.same(refused, []);
  await t.rejects(channel.send({ kind: 'echo', body: 'x'.repeat(70_000) }), /65536 bytes/);
});

t.test('a message waits for a registry, once, however often it is sent', { skip: withoutRedis }, async (t) => {
  const { channel, inbox, redis } = await openChannel(t);
  for (let twice = 0; twice < 2; twice += 1)
    await t.rejects(channel.send({ kind: 'echo', body: 'late' }), /the registry does not reply/);
  t.equal(await redis.client.xlen(stream), 1);
  inbox.serve({ echo: (body) => Promise.resolve(`${body}!`) });
  t.equal(await channel.send({ kind: 'echo', body: 'late' }), 'late!');
});

t.test('a message that another client removes from the stream is added again', { skip: withoutRedis }, async (t) => {
  const { channel, inbox, redis } = await openChannel(t);
  await t.rejects(channel.send({ kind: 'echo', body: 'lost' }), /the registry does not reply/);
  await redis.client.xtrim(stream, 'MAXLEN', 0);
  inbox.serve({ echo: (body) => Promise.resolve(`${body}!`) });
  t.equal(await channel.send({ kind: 'echo', body: 'lost' }), 'lost!');
});

t.test('a message that the registry cannot handle yet stays, and blocks none', { skip: withoutRedis }, async (t) => {
  const { channel, failures, inbox, redis } = await openChannel(t);
  let isAway = true;
  inbox.serve({
    echo: (body) => (isAway && body === 'first' ? Promise.reject(new Error('no SQL')) : Promise.resolve(`${body}!`)),
  });
  const send = () => channel.send({ kind: 'echo', body: 'first' });
  const first = send();
  first.catch(() => undefined); // sent again below, as a gateway does
  t.equal(await channel.send({ kind: 'echo', body: 'second' }), 'second!');
  // The second message can get its reply before the inbox reports that it could not handle the first message.
  const isStuck = async () => inbox.workingSince === null && (await redis.client.xlen(stream)) === 1;
  await until(isStuck, 'no gateway is reported as silent meanwhile');
  t.match(failures[0], { message: 'no SQL' });
  const mendedAt = performance.now();
  isAway = false;
  t.equal(await first.catch(send), 'first!');
  await until(() => Promise.resolve((inbox.workingSince ?? -Infinity) >= mendedAt), 'the inbox works again');
});

t.test(
  'a message that keeps failing while others succeed does not stop the watch for silence',
  { skip: withoutRedis },
  async (t) => {
    const { channel, failures, inbox, redis, refused } = await openChannel(t, 300);
    inbox.serve({
      echo: (body) => (body === 'poison' ? Promise.reject(new Error('a defect')) : Promise.resolve(`${body}!`)),
    });
    const poison = t.rejects(channel.send({ kind: 'echo', body: 'poison' }), /the registry does not reply/);
    await until(() => Promise.resolve(failures.length > 0), 'it has failed');
    await wait(600);
    t.same([refused, await redis.client.xlen(stream)], [[], 1], 'as long as nothing proves that the database works');
    t.equal(await channel.send({ kind: 'echo', body: 'other' }), 'other!');
    const isWorking = async () => inbox.workingSince !== null && (await redis.client.xlen(stream)) === 0;
    await until(isWorking, 'the message is discarded');
    t.same(refused, [
      'processing the message failed repeatedly, although other messages were processed; the message was discarded',
    ]);
    await poison;
    const before = failures.length;
    const again = t.rejects(channel.send({ kind: 'echo', body: 'poison' }), /the registry does not reply/);
    await until(() => Promise.resolve(refused.length === 2), 'it is discarded again');
    t.equal(failures.length, before + 1, 'it was retried once');
    await until(isWorking, 'it stops nothing');
    await again;
  },
);

t.test('a value in Redis larger than a message is not read', { skip: withoutRedis }, async (t) => {
  const { channel, inbox, redis, refused } = await openChannel(t);
  const sent = async () => Number(/total_net_output_bytes:(\d+)/.exec(await redis.client.info('stats'))?.[1]);
  const large = 'x'.repeat(20_000_000);
  // On a slow Redis, the check of so large a value can take longer than the timeout of a command.
  const refusal = t.rejects(
    channel.send({ kind: 'echo', body: 'a' }),
    /the registry does not reply|cannot exchange messages/,
  );
  let id = '';
  await until(async () => {
    const [entry] = await redis.client.xrange(stream, '-', '+');
    id = /"id":"([^"]+)"/.exec(entry?.[1][1] ?? '')?.[1] ?? '';
    return id !== '';
  }, 'the message is in the stream');
  await redis.client.set(`mg:reply:${id}`, large);
  const before = await sent();
  await refusal;
  t.ok((await sent()) - before < 1_000_000, 'not by the gateway');
  await redis.client.xadd(stream, '*', 'message', large);
  inbox.serve({ echo: (body) => Promise.resolve(body) });
  await until(() => Promise.resolve(refused.length > 0), 'it is discarded');
  t.same(refused, ['the message is malformed, or it is not sealed with the secret in keys.recordSecretFile']);
  t.ok((await sent()) - before < 1_000_000, 'nor by the registry');
});

t.test('without a secret, an unreadable message is malformed', { skip: withoutRedis }, async (t) => {
  const { inbox, redis, refused } = await openChannel(t, undefined, new Seals([]));
  inbox.serve({ echo: (body) => Promise.resolve(body) });
  await redis.client.xadd(stream, '*', 'message', '{');
  await until(() => Promise.resolve(refused.length > 0), 'it is discarded');
  t.same(refused, ['the message is malformed']);
});

t.test('a reply that is too long to be sent is reported', { skip: withoutRedis }, async (t) => {
  const { channel, inbox, redis, refused } = await openChannel(t);
  inbox.serve({ echo: () => Promise.resolve('x'.repeat(65_537)) });
  await t.rejects(channel.send({ kind: 'echo', body: 'a' }), /the registry does not reply/);
  t.same(refused, ['long reply: echo']);
  t.equal(await redis.client.xlen(stream), 0, 'the message is not handled again');
});

t.test('the stream has a maximum length', { skip: withoutRedis }, async (t) => {
  const { channel, redis } = await openChannel(t);
  const pipeline = redis.client.pipeline();
  for (let count = 0; count < 10_000; count += 1) pipeline.xadd(stream, '*', 'message', 'x');
  await pipeline.exec();
  await t.rejects(channel.send({ kind: 'echo', body: 'one more' }), /too many unread messages to the registry/);
  t.equal(await redis.client.xlen(stream), 10_000, 'waiting messages are not evicted');
});

t.test('a channel recovers after a Redis outage', { skip: withoutRedis }, async (t) => {
  const { channel, inbox, redis } = await openChannel(t);
  inbox.serve({ echo: (body) => Promise.resolve(`${body}!`) });
  t.equal(await channel.send({ kind: 'echo', body: 'before' }), 'before!');
  await redis.kill();
  await t.rejects(channel.send({ kind: 'echo', body: 'after' }));
  await redis.restart();
  const sendUntilTaken = async (): Promise<string> => {
    for (;;) {
      const reply = await channel.send({ kind: 'echo', body: 'after' }).catch(() => null);
      if (reply !== null) return reply;
      await wait(50);
    }
  };
  t.equal(await sendUntilTaken(), 'after!');
});
