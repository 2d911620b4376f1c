import { once } from 'node:events';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { ClusterMasters } from '../../src/adapters/redis/cluster/cluster-masters.js';
import { until } from './redis-cluster.js';
import type { Teardown } from './redis-server.js';

interface FakeMaster {
  readonly port: number;
  /** The epoch that it reports: a number that each attempt to replace a master raises. */
  epoch: number;
  /** Its reply to CLUSTER NODES. */
  nodes: string;
  /** The commands that it received. */
  readonly asked: string[];
}

/** A fake master that reports what the test sets. A real one that is cut off notices this too soon for a test. */
async function startFakeMaster(t: Teardown): Promise<FakeMaster> {
  const sockets = new Set<net.Socket>();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('data', (chunk) => {
      for (const command of chunk
        .toString()
        .split(/^\*\d+\r\n/m)
        .slice(1)) {
        const words = [...command.matchAll(/\$\d+\r\n(.*)\r\n/g)].map(([, word = '']) => word);
        master.asked.push(words.join(' '));
        socket.write(replyTo(words.join(' ').toUpperCase()));
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const master: FakeMaster = { port: (server.address() as AddressInfo).port, epoch: 1, nodes: '', asked: [] };
  const bulk = (text: string): string => `$${text.length}\r\n${text}\r\n`;
  const replyTo = (command: string): string => {
    if (command === 'INFO') return bulk('loading:0\r\n');
    if (command === 'CLUSTER INFO') return bulk(`cluster_state:ok\r\ncluster_current_epoch:${master.epoch}\r\n`);
    if (command === 'CLUSTER NODES') return bulk(master.nodes);
    if (command === 'CLIENT ID') return ':1\r\n';
    if (command.startsWith('SUBSCRIBE')) return `*3\r\n$9\r\nsubscribe\r\n${bulk('__redis__:invalidate')}:1\r\n`;
    return command === 'PING' ? `*2\r\n$4\r\npong\r\n$0\r\n\r\n` : '+OK\r\n';
  };
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return master;
}

t.test('a slot map counts only when every master confirms it with the same epoch, on each check', async (t) => {
  const [one, other] = [await startFakeMaster(t), await startFakeMaster(t)];
  const nodesWith = (border: number): string =>
    `a 127.0.0.1:${one.port}@1 master - 0 0 1 connected 0-${border}\nb 127.0.0.1:${other.port}@1 master - 0 0 1 connected ${border + 1}-16383`;
  for (const master of [one, other]) master.nodes = nodesWith(8_000);
  const events: string[] = [];
  const masters = new ClusterMasters({
    address: {
      ...{ url: 'redis://x', sentinels: null, masterName: '', username: null, password: null, ca: null },
      cluster: [{ host: '127.0.0.1', port: one.port }],
      commandTimeoutMilliseconds: 5_000,
    },
    prefixes: ['mg:'],
    events: {
      onChanged: () => undefined,
      onEverythingChanged: () => events.push('everything'),
      onListening: () => events.push('listening'),
      onDisconnected: () => events.push('disconnected'),
      onReady: () => undefined,
    },
    onError: () => undefined,
  });
  t.teardown(() => {
    masters.close();
  });
  t.throws(() => masters.owner(0), /do not agree/);
  const agreed = () =>
    masters.agree().then(
      () => true,
      () => false,
    );
  await until(agreed, 'both confirm');
  t.equal(masters.connected, true);
  t.equal(masters.owner(8_000).node.port, one.port);
  t.equal(masters.owner(8_001).node.port, other.port);
  await masters.catchUp();
  for (const { asked } of [one, other]) t.ok(asked.includes('ping'), "each master's pending notices were processed");

  const before = masters.epoch;
  events.length = 0;
  other.epoch = 2; // this master voted to replace the first one, and the first one does not know that yet
  await t.rejects(masters.agree(), /do not report the same/);
  t.equal(masters.connected, false);
  t.same(events, ['disconnected'], 'cached records are no longer known to be current');
  t.throws(() => masters.owner(0), /do not agree/, 'no master is queried');
  await t.rejects(masters.agree(), /do not report the same/);
  one.epoch = 2;
  await masters.agree();
  t.ok(masters.epoch > before, 'after an epoch change earlier knowledge is invalid');
  t.same(events, ['disconnected', 'listening']);

  one.nodes = nodesWith(9_000);
  await t.rejects(masters.agree(), /do not report the same/, 'the same epoch alone is not enough');
  other.nodes = nodesWith(9_000);
  await masters.agree();
  t.equal(masters.owner(9_000).node.port, one.port);
  one.nodes = nodesWith(16_382).split('\n')[0] ?? '';
  other.nodes = one.nodes;
  await t.rejects(masters.agree());
  await t.rejects(masters.agree(), /does not cover all slots/);
});
