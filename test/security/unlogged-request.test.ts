import t from 'tap';
import { connect, startTestGateway } from '../edge/harness.js';

// A request that is refused before it is read whole must not let its client probe the gateway without a trace.
t.test('each malformed request leaves a line in the log, also where its client leaves at once', async (t) => {
  const gateway = await startTestGateway(t);
  const host = 'Host: localhost\r\n';
  const malformed = [
    'garbage\r\n\r\n',
    `GET / HTTP/1.1\r\n${host}x y: z\r\n\r\n`,
    `GET / HTTP/1.1\r\n${host}x: \x01\r\n\r\n`,
    `POST / HTTP/1.1\r\n${host}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n`,
    `GET / HTTP/9.9\r\n${host}\r\n`,
    `GET / HTTP/1.1\r\n${host}x: ${'y'.repeat(60_000)}\r\n\r\n`,
    `GET /${'y'.repeat(60_000)} HTTP/1.1\r\n${host}\r\n`,
  ];
  for (const [port, ca] of [
    [gateway.https, gateway.ca],
    [gateway.http, null],
  ] as const) {
    for (const bytes of malformed) {
      for (const leave of ['stays', 'ends', 'leaves'] as const) {
        gateway.lines.length = 0;
        const socket = connect(port, ca).on('error', () => undefined);
        socket.resume();
        await new Promise((resolve) => socket.write(bytes, 'latin1', resolve));
        if (leave === 'ends') socket.end();
        else if (leave === 'leaves') socket.destroy();
        const name = `${JSON.stringify(bytes.slice(0, 30))}, ${leave}`;
        for (let turn = 0; gateway.lines.length === 0 && turn < 500; turn += 1) {
          await new Promise((resolve) => setTimeout(resolve, 5));
        }
        t.equal(gateway.lines.length, 1, name);
        socket.destroy();
      }
    }
  }
});
