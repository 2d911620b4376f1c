import { EventEmitter, once } from 'node:events';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import t from 'tap';
import type { RedisAddress } from '../../src/adapters/redis/connection.js';
import { inspectRedis } from '../../src/adapters/redis/inspect/inspect-redis.js';
import { RedisExitLists } from '../../src/adapters/redis/redis-exit-lists.js';
import { SentinelMajority } from '../../src/adapters/redis/server/sentinel-majority.js';
import { RedisStoredRecords } from '../../src/adapters/redis/stored-records.js';
import { untilReady } from '../../src/adapters/redis/until-ready.js';
import { stallProcess } from '../stall-process.js';
import { plainRedis, startRedis, withoutRedis } from './redis-server.js';
import type { Teardown } from './redis-server.js';

// After a stall of the process, Node runs due timers before it reads the bytes that arrived meanwhile.

const readsWhenConnected: Readonly<Record<string, (t: Teardown, address: RedisAddress) => Promise<string | null>>> = {
  'the Tor exit list': (t, address) => {
    const lists = new RedisExitLists(address, 'mg:', () => undefined);
    t.teardown(() => lists.close());
    return lists.read();
  },
  'a stored record': (t, address) => {
    const records = new RedisStoredRecords(address, 'mg:');
    t.teardown(() => {
      records.close();
    });
    return records.read('meta');
  },
};

/** A server in this process. After each reply to ioredis's ready check or to another command, it calls `onReply`. */
async function startServer(
  t: Teardown,
  reply: string,
  onReply: (command: 'ready check' | 'another') => void,
): Promise<number> {
  const server = net.createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      const isReadyCheck = /info/i.test(bytes.toString('latin1'));
      socket.write(isReadyCheck ? '$9\r\nloading:0\r\n' : reply);
      onReply(isReadyCheck ? 'ready check' : 'another');
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}

for (const [what, read] of Object.entries(readsWhenConnected))
  t.test(`${what} is read although the process stalls before the connection is ready`, async (t) => {
    const port = await startServer(t, '$-1\r\n', (command) => {
      if (command === 'ready check') stallProcess(2_500);
    });
    t.equal(await read(t, plainRedis(`redis://127.0.0.1:${port}`)), null);
  });

t.test('a sentinel that replies while the process stalls has its vote', async (t) => {
  let stalls = 0;
  const port = await startServer(t, '*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n', (command) => {
    if (command === 'ready check' || stalls > 0) return;
    stalls += 1;
    stallProcess(1_500);
  });
  const sentinels = [{ host: '127.0.0.1', port }];
  const majority = new SentinelMajority({ ...plainRedis('redis://127.0.0.1'), sentinels, masterName: 'mymaster' });
  t.teardown(() => {
    majority.close();
  });
  const master = { stream: { remoteAddress: '127.0.0.1', remotePort: 6379 } } as unknown as Redis;
  let verdict = await majority.judge(master);
  while (stalls === 0) {
    await turn(); // until the connection to the sentinel is ready
    verdict = await majority.judge(master);
  }
  t.equal(verdict, 'this');
});

t.test('a stall does not end the wait for a connection, but silence does', async (t) => {
  const keepsRunning = setInterval(() => undefined, 1_000);
  t.teardown(() => {
    clearInterval(keepsRunning);
  });
  const redis = new EventEmitter() as unknown as Redis;
  const ready = untilReady(redis, 200);
  setImmediate(() => {
    setImmediate(() => redis.emit('ready')); // after the timers that become due during the stall
    stallProcess(1_000);
  });
  await t.resolves(ready);
  await t.rejects(untilReady(redis, 200), { cause: { message: /not ready within 200 ms/ } });
});

t.test('an inspection does not take a stall of its process for a silent Redis', { skip: withoutRedis }, async (t) => {
  const redis = await startRedis(t);
  let hasStalled = false;
  const proxy = net.createServer((near) => {
    const far = net.connect(redis.port, '127.0.0.1');
    near.on('error', () => undefined).on('close', () => far.destroy());
    far.on('error', () => undefined).on('close', () => near.destroy());
    near.on('data', (bytes) => far.write(bytes));
    far.on('data', (bytes) => {
      near.write(bytes);
      if (!hasStalled) stallProcess(2_000);
      hasStalled = true;
    });
  });
  await once(proxy.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => proxy.close());
  const { port } = proxy.address() as AddressInfo;
  const address = plainRedis(`redis://127.0.0.1:${port}`);
  const use = { part: 'gateway', preloads: true, countsRequests: true, usesChannel: true } as const;
  const inspected = inspectRedis({ address, prefix: 'mg:', use });
  setImmediate(stallProcess, 2_000); // while it connects
  t.same(await inspected, []);
});
