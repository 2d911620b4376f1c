// The upstream of all subjects: as little HTTP as they need, because it shares its CPU with the load.
import net from 'node:net';

const bare = { success: true, message: 'OK', data: [], pad: '' };
const answers = [184, 65_536].map((length) => {
  const body = JSON.stringify({ ...bare, pad: 'x'.repeat(length - JSON.stringify(bare).length) });
  const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: ${length}\r\n\r\n`;
  return Buffer.from(head + body);
});

/** The length of the first request in this text; null while that request is incomplete. */
function lengthOf(text) {
  const headEnd = text.indexOf('\r\n\r\n') + 4;
  if (headEnd === 3) return null;
  if (text.startsWith('GET')) return headEnd;
  const head = text.slice(0, headEnd);
  const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
  if (length !== undefined) return text.length >= headEnd + Number(length) ? headEnd + Number(length) : null;
  if (!/\r\ntransfer-encoding: *chunked/i.test(head)) return headEnd;
  const end = text.indexOf('\r\n0\r\n\r\n', headEnd - 2);
  return end === -1 ? null : end + 7;
}

const server = net.createServer((socket) => {
  let waiting = '';
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk) => {
    waiting += chunk.latin1Slice();
    for (let length = lengthOf(waiting); length !== null; length = lengthOf(waiting)) {
      const isLarge = waiting.slice(0, waiting.indexOf('\r\n')).includes('per_page=100');
      socket.write(answers[isLarge ? 1 : 0]);
      waiting = waiting.slice(length);
    }
  });
});
server.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ upstream: server.address().port })));
