import http from 'node:http';
import { once } from 'node:events';
import { connect } from 'node:net';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import type { Test } from 'tap';
import { endReading } from '../../src/http/end-reading.js';

const get = 'GET /get HTTP/1.1\r\nHost: a\r\n\r\n';
const post = 'POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nfour';
const last = 'GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';

t.test('Node ends no stream of a request that was said to have none', async (t) => {
  t.strictSame(await eventsOf(t, get + post + get + last, []), [
    ...['/get close', '/get close', '/get end', '/get end', '/get resume', '/get resume'],
    ...['/last close', '/last end', '/last resume', '/post close', '/post end', '/post resume'],
  ]);
  t.strictSame(await eventsOf(t, get + post + get + last, ['/get']), [
    ...['/last close', '/last end', '/last resume', '/post close', '/post end', '/post resume'],
  ]);
});

t.test('a body that comes all the same is dropped, and is no request', async (t) => {
  t.strictSame(await eventsOf(t, post + get + last, ['/post', '/get']), ['/last close', '/last end', '/last resume']);
});

t.test('nor that of a request whose body was taken', async (t) => {
  const told: string[] = [];
  const server = http.createServer((request, response) => {
    noteEvents(request, told);
    setImmediate(() => {
      const body = request.read() as Buffer | null;
      if (request.url === '/post') endReading(request);
      response.end(`took ${body?.toString() ?? 'nothing'} `);
    });
  });
  const socket = connect(await listen(t, server), '127.0.0.1');
  let read = '';
  socket.on('data', (chunk: Buffer) => (read += chunk.toString()));
  socket.write(post + post + last);
  await once(socket, 'close');
  t.strictSame(read.match(/took \w+/g), ['took four', 'took four', 'took nothing']);
  t.strictSame(told.toSorted(), ['/last close', '/last end', '/last resume']);
});

t.test('nor does it tell such a stream of a caller who left', async (t) => {
  const told: string[] = [];
  const server = http.createServer((request, response) => {
    noteEvents(request, told);
    if (request.url === '/get') endReading(request);
    response.once('close', () => told.push(`${request.url ?? ''} answer closed`));
    request.socket.destroy();
  });
  const port = await listen(t, server);
  for (const requests of [get, last]) {
    const socket = connect(port, '127.0.0.1', () => socket.write(requests));
    await once(socket, 'close');
  }
  t.strictSame(told.toSorted(), [
    '/get answer closed',
    '/last aborted',
    '/last answer closed',
    '/last close',
    '/last error',
  ]);
});

/** What the streams of requests tell whose server answers each at once; those of some paths are said to have no body. */
async function eventsOf(t: Test, requests: string, bodyless: readonly string[]): Promise<string[]> {
  const told: string[] = [];
  const server = http.createServer((request, response) => {
    const { url = '' } = request;
    noteEvents(request, told);
    if (bodyless.includes(url)) endReading(request);
    response.end(`answer to ${url} `);
  });
  const socket = connect(await listen(t, server), '127.0.0.1');
  let read = '';
  socket.on('data', (chunk: Buffer) => (read += chunk.toString()));
  socket.write(requests);
  await once(socket, 'close');
  const asked = [...requests.matchAll(/(?:GET|POST) (\S+)/g)].map(([, url]) => url);
  const answered = [...read.matchAll(/answer to (\S+) /g)].map(([, url]) => url);
  t.strictSame(answered, asked, 'each request has its answer');
  return told.toSorted();
}

function noteEvents(request: http.IncomingMessage, told: string[]): void {
  for (const event of ['resume', 'end', 'close', 'aborted', 'error']) {
    request.on(event, () => told.push(`${request.url ?? ''} ${event}`));
  }
}

async function listen(t: Test, server: http.Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}
