import { once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import t from 'tap';
import { connect, liveKey, startTestGateway, startUpstream } from '../edge/harness.js';

// The error of a request that broke off was emitted a tick after Node had seen somebody listen for it. The upload was over in
// that tick, nobody listened any more, and the process ended, with every request that it carried.
t.test('callers who leave in the middle of an upload leave the gateway as it was', async (t) => {
  const upstream = await startUpstream(t);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  for (const method of ['GET', 'POST', 'PUT', 'DELETE']) {
    for (let count = 0; count < 40; count += 1) {
      const socket = connect(gateway.https, gateway.ca);
      socket.on('error', () => undefined);
      await once(socket, 'secureConnect');
      const head = `${method} /v1/dev/customers/1 HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${liveKey}\r\n`;
      socket.write(`${head}Content-Length: 100000\r\n\r\n${'a'.repeat(count % 2 === 0 ? 30_000 : 70_000)}`);
      await wait(count % 5);
      const closed = once(socket, 'close');
      socket.destroy();
      await closed;
    }
  }
  await wait(50);
  t.ok(gateway.lines.length > 40);
  t.ok(gateway.lines.every((line) => (line.event as { code: string }).code === 'client_closed'));
});
