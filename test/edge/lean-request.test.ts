import http from 'node:http';
import { once } from 'node:events';
import { connect } from 'node:net';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { LeanRequest } from '../../src/edge/server/create-server.js';

t.test('Node builds the headers object only for requests with Expect; rawHeaders always has all headers', async (t) => {
  const seen: object[] = [];
  const server = http.createServer({ IncomingMessage: LeanRequest, requireHostHeader: false }, listenerFor('request'));
  server.on('checkContinue', listenerFor('checkContinue')).on('checkExpectation', listenerFor('checkExpectation'));
  server.listen(0, '127.0.0.1');
  t.teardown(() => server.close());
  await once(server, 'listening');

  for (const more of ['', 'eXpect: 100-continue\r\n', 'Expect: nothing\r\n']) {
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    socket.end(`GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n${more}Connection: close\r\n\r\n`);
    socket.resume();
    await once(socket, 'close');
  }
  t.strictSame(seen, [
    { event: 'request', headers: {}, raw: 6 },
    {
      event: 'checkContinue',
      headers: { host: 'a', accept: '*/*', expect: '100-continue', connection: 'close' },
      raw: 8,
    },
    {
      event: 'checkExpectation',
      headers: { host: 'a', accept: '*/*', expect: 'nothing', connection: 'close' },
      raw: 8,
    },
  ]);

  function listenerFor(event: string): http.RequestListener {
    return (request, response) => {
      seen.push({ event, headers: { ...request.headers }, raw: request.rawHeaders.length });
      response.end();
    };
  }
});
