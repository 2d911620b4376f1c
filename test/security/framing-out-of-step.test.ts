import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import t from 'tap';
import { followRequestLines, namesHttp } from '../../src/http/request-lines.js';

// What follows the requests of a connection read an empty Transfer-Encoding as chunks, and what was left of an overlong
// chunk size as the last chunk. It then stood elsewhere than Node's parser, and a request line of RTSP could be put where
// it looked for one of HTTP.

/** A request as Node's parser tells it. */
type Told = Pick<IncomingMessage, 'method' | 'url' | 'rawHeaders'>;

/** Gives bytes, and says of the requests that Node finds at their end whether their lines name HTTP. */
function follow(steps: readonly (readonly [bytes: string, ...found: Told[]])[], maxBytes = 1_000): boolean[] {
  const socket = new Socket();
  followRequestLines(socket, maxBytes);
  return steps.flatMap(([bytes, ...found]) => {
    socket.emit('data', Buffer.from(bytes, 'latin1'));
    return found.map((told) => namesHttp(Object.assign(new IncomingMessage(socket), told)));
  });
}

const get: Told = { method: 'GET', url: '/x', rawHeaders: ['Host', 'a'] };
const chunked: Told = { method: 'POST', url: '/x', rawHeaders: ['Host', 'a', 'Transfer-Encoding', 'chunked'] };
const http = 'GET /x HTTP/1.1\r\nHost: a\r\n\r\n';
const rtsp = http.replace('HTTP/', 'RTSP/');

t.test('an empty coding is none, as it is to Node', (t) => {
  for (const more of [[], ['Content-Length', '2']]) {
    const told: Told = { method: 'POST', url: '/x', rawHeaders: ['Transfer-Encoding', '', ...more] };
    const post = `POST /x HTTP/1.1\r\nTransfer-Encoding:\r\n${more.length > 0 ? 'Content-Length: 2\r\n\r\n{}' : '\r\n'}`;
    t.same(follow([[post + rtsp + http, told, get]]), [true, false]);
    t.same(follow([[post + http + rtsp, told, get, get]]), [true, true, false]);
  }
  t.end();
});

t.test('behind a chunk size that is too long to be kept nothing is found', (t) => {
  const post = 'POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n';
  const size = `${'0'.repeat(5_000)}5`;
  const rest = `\r\n${rtsp.slice(0, 5)}\r\n0\r\n\r\n${http}`;
  t.same(follow([[post, chunked], [size.slice(0, 2_500)], [size.slice(2_500)], [rest, get]]), [true, false]);
  t.same(follow([[post, chunked], ['000'], [`05\r\n12345\r\n0\r\n\r\n${http}`, get]]), [true, true], 'a short one');
  t.end();
});

t.test('a head is found however it comes', (t) => {
  const long = `GET /x HTTP/1.1\r\nHost: a\r\nx: ${'y'.repeat(900)}\r\n\r\n`;
  const bytes = Array.from(long.repeat(3));
  const steps = bytes.map((byte, index): [string, ...Told[]] =>
    (index + 1) % long.length === 0 ? [byte, get] : [byte],
  );
  t.same(follow(steps), [true, true, true]);
  t.end();
});
