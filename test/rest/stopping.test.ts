import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { createRestApp, type RestApp } from '../../src/rest/rest-app.js';

/**
 * Stops an API while it responds to a request. Returns what the API sends to that request and to those pipelined after
 * it.
 */
async function responsesWhileStopping(app: RestApp, requests: string): Promise<string> {
  let release = (): void => undefined;
  const begun = new Promise<void>((resolve) => {
    app.get('/slow', async () => {
      resolve();
      await new Promise<void>((goOn) => (release = goOn));
      return { slow: true };
    });
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const socket = connect((app.server.address() as AddressInfo).port, '127.0.0.1');
  await once(socket, 'connect');
  const responses = text(socket);
  socket.write('GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n');
  await begun;
  const closed = app.close();
  socket.write(requests);
  // Waits until Node has read and parsed the pipelined requests. It counts turns of the event loop, because a pause of
  // the whole process would use up a fixed time.
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setTimeout(resolve, 2));
  release();
  await closed;
  return responses;
}

t.test('a request that arrives while the API stops gets 503 in the envelope, with retry-after', async (t) => {
  let admitted = 0;
  const app = createRestApp({
    admit: (one) => {
      one.addHook('onRequest', (_request, _reply, done) => {
        admitted += 1;
        done();
      });
    },
  });
  const responses = await responsesWhileStopping(app, 'GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n');
  const [first = '', second = ''] = responses.split(/(?=HTTP\/1\.1 )/);
  t.match(first, /^HTTP\/1\.1 200 OK.*\{"slow":true\}$/s, 'the request in progress gets its response');
  t.match(second, /^HTTP\/1\.1 503 Service Unavailable\r\n/);
  t.match(second, /\r\nretry-after: 1\r\n/i);
  t.match(second, /\r\ncache-control: no-store\r\n/i);
  t.match(second, /\r\ncontent-type: application\/json; charset=utf-8\r\n/i);
  t.match(second, /\r\nconnection: close\r\n/i);
  const body: unknown = JSON.parse(second.slice(second.indexOf('\r\n\r\n')));
  t.same(body, {
    success: false,
    message: 'Service unavailable',
    data: { code: 'service_unavailable', errors: [] },
  });
  t.equal(admitted, 1, 'the second request reached no hook');
});
