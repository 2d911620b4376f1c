import t from 'tap';
import type { ServerResponse } from 'node:http';
import { liveKey, startTestGateway, startUpstream } from '../http/harness.js';
import { FrameConnection, frame, headersFrames, requestFields, uint32 } from '../http/http2-frames.js';

const key = ['x-api-key', liveKey] as const;

/** Frames after which HTTP/2 cannot go on (RFC 9113 5.4.1). */
const errors: Readonly<Record<string, Buffer>> = {
  'a PING of 7 bytes': frame('ping', 0, 0, Buffer.alloc(7)),
  'a PING on a stream': frame('ping', 0, 1, Buffer.alloc(8)),
  'fields that cannot be decompressed': frame('headers', 5, 3, Buffer.alloc(6, 0xff)),
  'DATA of a stream that never was': frame('data', 0, 9, Buffer.alloc(3)),
  'SETTINGS of 5 bytes': frame('settings', 0, 0, Buffer.alloc(5)),
  'a window above its bound': frame('windowUpdate', 0, 0, uint32(0x7fffffff)),
  'a CONTINUATION of nothing': frame('continuation', 0, 1, Buffer.alloc(3)),
  'HTTP/1.1': Buffer.from('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'),
};

// Node sent GOAWAY, and then neither read nor closed: whoever broke the protocol held his connection and his requests.
t.test('a connection on which HTTP/2 is broken is closed, and the requests on it end', async (t) => {
  const upstream = await startUpstream(t);
  const given: ServerResponse[] = [];
  upstream.respond = (_request, response) => given.push(response);
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url });
  const cases = Object.values(errors);
  const busy = cases.map(() => new FrameConnection(gateway.https, gateway.ca));
  for (const connection of busy) {
    connection.ask(1, 'GET', '/v1/transactions', [key]);
    connection.send(
      headersFrames(3, 0, requestFields('POST', '/v1/payouts', [key])),
      frame('data', 0, 3, Buffer.from('{')),
    );
  }
  while (given.length < busy.length) await new Promise((resolve) => setImmediate(resolve));
  const idle = cases.map(() => new FrameConnection(gateway.https, gateway.ca));
  await Promise.all(idle.map((connection) => connection.until(() => connection.of('settings').length > 1)));
  const patient = new FrameConnection(gateway.https, gateway.ca);
  patient.ask(1, 'GET', '/v1/transactions', [key]);

  for (const [index, bad] of cases.entries()) for (const all of [busy, idle]) all[index]?.send(bad);
  await Promise.all([...busy, ...idle].map((connection) => connection.untilClosed()));
  for (const connection of [...busy, ...idle]) t.not(connection.goaway() ?? 1, 0, 'it was told so');
  while (gateway.lines.length < 2 * busy.length) await new Promise((resolve) => setImmediate(resolve));
  t.ok(gateway.lines.every((line) => (line.event as { code: string }).code === 'client_closed'));
  const cutOff = () => given.slice(0, busy.length).every(({ destroyed }) => destroyed);
  while (!cutOff()) await new Promise((resolve) => setImmediate(resolve));

  await patient.until(() => patient.of('ping').length > 1);
  given.at(-1)?.end('at last');
  await patient.until(() => patient.isOver(1));
  t.equal(patient.body(1), 'at last', 'who only waits is not taken for one');
  patient.socket.destroy();
});
