// The least that a program on Node's sockets can cost: node:net and node:tls, a key check and a fixed response. It does
// not parse HTTP correctly and has no upstream.
import net from 'node:net';
import tls from 'node:tls';
import { certificate, checkKey, ready } from './key-check.mjs';

const accepted = answer('200 OK', JSON.stringify({ success: true, message: 'OK', data: 'x'.repeat(140) }));

function answer(status, body) {
  const date = new Date().toUTCString();
  const headers = ['content-type: application/json; charset=utf-8', 'cache-control: no-store', `date: ${date}`];
  return [`HTTP/1.1 ${status}`, ...headers, `content-length: ${body.length}`, '', body].join('\r\n');
}

function answerTo(head) {
  const name = '\r\nx-api-key: ';
  const at = head.indexOf(name);
  const key = at === -1 ? undefined : head.slice(at + name.length, head.indexOf('\r\n', at + name.length));
  const { denial } = checkKey({ 'x-api-key': key });
  return denial === undefined ? accepted : answer('401 Unauthorized', denial);
}

function serve(socket) {
  let unread = '';
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk) => {
    unread += chunk.latin1Slice();
    for (let end = unread.indexOf('\r\n\r\n'); end !== -1; end = unread.indexOf('\r\n\r\n')) {
      const head = unread.slice(0, end + 2);
      unread = unread.slice(end + 4);
      socket.write(answerTo(head), 'latin1');
      if (head.includes('\r\nconnection: close\r\n')) socket.end();
    }
  });
}

const plain = net.createServer({ noDelay: true }, serve).listen(0, '127.0.0.1', () => {
  const secure = tls.createServer({ ...certificate(), noDelay: true }, serve).listen(0, '127.0.0.1', () => {
    ready(plain.address().port, secure.address().port);
  });
});
