import net, { type AddressInfo } from 'node:net';
import { Cluster } from 'ioredis';
import t from 'tap';
import { connectAny } from '../../src/adapters/redis/connection.js';
import { type Place, places } from './record-places.js';
import { plainRedis, until, withoutRedis } from './redis-server.js';
import type { Teardown } from './redis-server.js';

const name = 'mg:key:1';
const timeout = 2_000;
const longestSilence = 3_000;
const silent = `no data arrived for ${longestSilence} ms after a command`;

/** Opens a connection, and waits for a first reply. `errors` has the errors of its sockets after that reply. */
async function open(t: Teardown, { url, cluster }: Pick<Place, 'url' | 'cluster'>) {
  const errors: string[] = [];
  const note = ({ message }: Error): number => errors.push(message);
  const redis = connectAny({ ...plainRedis(url), cluster, commandTimeoutMilliseconds: timeout }, note);
  if (redis instanceof Cluster) redis.on('node error', note);
  t.teardown(() => {
    redis.disconnect();
  });
  const read = () => redis.get(name);
  const works = () =>
    read().then(
      () => true,
      () => false,
    );
  // A node that is still connecting during the stall would time out.
  const isReady = () => !(redis instanceof Cluster) || redis.nodes().every(({ status }) => status === 'ready');
  await until(async () => (await works()) && isReady(), 'connected');
  errors.length = 0;
  return { errors, read, works };
}

/** Keeps the process busy, so that Node reads no socket meanwhile. */
function stall(milliseconds: number): void {
  for (const end = performance.now() + milliseconds; performance.now() < end;) Math.random();
}

for (const [what, start] of Object.entries(places)) {
  // Regression: a timer of ioredis fired before Node read the reply, and closed the connection.
  t.test(`a reply of ${what} that arrives while the process stalls is read`, { skip: withoutRedis }, async (t) => {
    const { errors, read } = await open(t, await start(t));
    const reading = read();
    stall(longestSilence + 500);
    t.equal(await reading, null);
    t.equal(await read(), null, 'on the same connection');
    t.same(errors, []);
  });

  t.test(`a connection on which ${what} is silent is closed`, { skip: withoutRedis }, async (t) => {
    const place = await start(t);
    const { errors, read, works } = await open(t, place);
    const server = await place.ownerOf(name);
    server.signal('SIGSTOP');
    await t.rejects(read(), { message: 'Command timed out' });
    t.notOk(errors.includes(silent), 'a late reply does not close it');
    await until(() => errors.includes(silent), 'closed');
    server.signal('SIGCONT');
    await until(works, 'reconnected');
  });
}

/** Starts a server that replies `OK` to each command, until `stopAfter` sets how many further replies it sends. */
async function startReplies(t: Teardown) {
  let left = Infinity;
  const server = net.createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (bytes: Buffer) => {
      // Each command begins with an asterisk, and no command of this test contains another one.
      const replies = Math.min(left, bytes.toString().split('*').length - 1);
      left -= replies;
      socket.write('+OK\r\n'.repeat(replies));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => server.close());
  const stopAfter = (replies: number): void => {
    left = replies;
  };
  return { url: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`, stopAfter };
}

t.test('a connection is closed if the server replies to one of two commands and then is silent', async (t) => {
  const { url, stopAfter } = await startReplies(t);
  const { errors, read, works } = await open(t, { url, cluster: null });
  stopAfter(1);
  const [first, second] = [read(), read()];
  const rejected = t.rejects(second, { message: 'Command timed out' });
  t.equal(await first, 'OK');
  await rejected;
  t.same(errors, [], 'not closed earlier');
  await until(() => errors.includes(silent), 'closed');
  stopAfter(Infinity);
  await until(works, 'reconnected');
});
