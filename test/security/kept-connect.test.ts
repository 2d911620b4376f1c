import { once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { connect, startTestGateway, startUpstream } from '../edge/harness.js';
import { leftOpen } from '../edge/left-open.js';

// Node hands the socket of a CONNECT over with none of its listeners and time-outs. Its connection was left open for good where the
// client kept its side open, or sent anything behind the request and left: some thousand of them, without a key, and
// nobody else could connect.
t.test('the connection of a CONNECT is closed soon after its answer, whatever its client does', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const ways: readonly (readonly [string, 'stays' | 'end' | 'destroy'])[] = [
    ['', 'stays'],
    ['', 'end'],
    ['more', 'end'],
    ['more', 'destroy'],
    ['x'.repeat(300_000), 'destroy'],
    ['more', 'stays'],
  ];
  const sockets = [];
  for (const [port, ca] of [
    [gateway.http, null],
    [gateway.https, gateway.ca],
  ] as const) {
    // prettier-ignore
    for (const [more, how] of ways) {
      const socket = connect(port, ca);
      socket.on('error', () => undefined);
      sockets.push(socket);
      socket.write('CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n');
      await once(socket, 'data');
      socket.write(more);
      await wait(20);
      if (how !== 'stays') socket[how]();
    }
  }
  t.equal(await leftOpen([gateway], 10_000), 0);
  t.equal(gateway.lines.length, sockets.length);
  for (const socket of sockets) socket.destroy();
});
