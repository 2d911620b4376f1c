import { once } from 'node:events';
import net from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { RedisRecords } from '../../src/adapters/redis/gateway/redis-records.js';
import { lookupIdOf } from '../../src/gateway/api-key.js';
import { keyStatus } from '../adapters/key-status.js';
import { startRedis, withoutRedis } from '../adapters/redis-server.js';
import { liveKey, recordsOf } from '../edge/harness.js';

const records = recordsOf(liveKey);
const lookupId = lookupIdOf(liveKey, null);
const keyName = `mg:key:${lookupId}`;
const limits = { maxEntries: 100, unknownMaxEntries: 100, unknownMaxAgeMilliseconds: 5_000 };

/** A name that leads to one server and, later, to another one, as a virtual address does: connections stay where they are. */
async function startName(t: { teardown(handler: () => unknown): void }, port: number) {
  let to = port;
  let isSilent = false;
  const open: { readonly socket: Socket; isListening: boolean }[] = [];
  const server = net.createServer((socket) => {
    const connection = { socket, isListening: false };
    const behind = net.connect(to, '127.0.0.1');
    open.push(connection);
    socket.on('data', (bytes: Buffer) => {
      connection.isListening ||= bytes.includes('TRACKING');
      const isLost = isSilent && bytes.includes('\r\nserver\r\n');
      if (isLost) isSilent = false;
      else behind.write(bytes);
    });
    behind.on('data', (bytes) => socket.write(bytes));
    for (const [one, other] of [
      [socket, behind],
      [behind, socket],
    ] as const) {
      // prettier-ignore
      one.on('error', () => undefined).on('close', () => other.destroy());
    }
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    server.close();
    for (const { socket } of open) socket.destroy();
  });
  return {
    url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** @param isDeaf whether the first question after that which server it is has no answer */
    move(port: number, isListening: boolean, isDeaf: boolean): void {
      to = port;
      isSilent = isDeaf;
      for (const one of open) if (one.isListening === isListening) one.socket.destroy();
    },
  };
}

// Records were read and changes acknowledged at the one server while notices were awaited from the other one: a key that was
// revoked was taken for as long as it was held, and the registry was told that the gateway knew.
t.test(
  'a key that is revoked where one connection has moved to is known there at once',
  { skip: withoutRedis },
  async (t) => {
    for (const [isListening, isDeaf] of [
      [false, false],
      [true, false],
      [false, true],
      [true, true],
    ] as const) {
      // prettier-ignore
      const [before, behind] = [await startRedis(t), await startRedis(t)];
      for (const { client } of [before, behind]) {
        for (const [name, record] of Object.entries(records)) await client.set(name, JSON.stringify(record));
        await client.set('mg:revision', '1');
      }
      const name = await startName(t, Number(new URL(before.url).port));
      const opened = new RedisRecords({
        address: {
          ...{
            url: name.url,
            sentinels: null,
            masterName: '',
            cluster: null,
            username: null,
            password: null,
            ca: null,
          },
          commandTimeoutMilliseconds: 1_000,
        },
        prefix: 'mg:',
        cache: { ...limits, maxAgeMilliseconds: 60_000, maxStaleMilliseconds: 30_000 },
        identity: { instanceId: 'g', environment: 'live', host: 'test', startedAt: '2026-01-01T00:00:00.000Z' },
        clock: { now: () => Date.now() },
        ...{ onMalformed: () => undefined, onLost: () => undefined, onFound: () => undefined },
      });
      t.teardown(() => opened.close());
      const status = (): Promise<string> => keyStatus(opened, lookupId);
      const until = async (wanted: string): Promise<void> => {
        for (const end = Date.now() + 10_000; (await status()) !== wanted && Date.now() < end;) await wait(10);
        t.equal(await status(), wanted);
      };
      await until('ACTIVE (cache)');
      name.move(Number(new URL(behind.url).port), isListening, isDeaf);
      await wait(2_500);
      await until('ACTIVE (cache)');
      const revoked = { ...(records[keyName] as object), status: 'REVOKED', revision: 2 };
      await behind.client.set(keyName, JSON.stringify(revoked));
      await behind.client.set('mg:revision', '2');
      await wait(1_000);
      t.match(await status(), 'REVOKED');
      t.match(JSON.parse((await behind.client.get('mg:gateway:g')) ?? ''), { revision: 2 });
    }
  },
);
