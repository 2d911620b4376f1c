import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { followRequestLines, namesHttp } from '../../src/http/request-lines.js';

// A body that came in one packet with its head was kept until the next packet of its connection: 64 KiB of payment data
// for each idle connection, also of callers without a key.
t.test('nothing of a body is kept once it has come', async (t) => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const sockets: Socket[] = [];
  const length = 60_000;
  const connections = 300;
  const most = (connections * length) / 4;
  const head = `POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: ${length}\r\n\r\n`;
  collect();
  const before = process.memoryUsage().arrayBuffers;
  for (let count = 0; count < connections; count += 1) {
    const socket = new Socket();
    sockets.push(socket);
    followRequestLines(socket, 24_576);
    socket.emit('data', Buffer.concat([Buffer.from(head), Buffer.alloc(length)]));
    const told = { method: 'POST', url: '/x', rawHeaders: ['Host', 'a', 'Content-Length', String(length)] };
    namesHttp(Object.assign(new IncomingMessage(socket), told));
  }
  let kept = Infinity;
  // Buffers are let go by a thread of V8's own, which may be behind.
  for (let attempt = 0; attempt < 50 && kept >= most; attempt += 1) {
    collect();
    await new Promise((resolve) => setTimeout(resolve, 10));
    kept = process.memoryUsage().arrayBuffers - before;
  }
  t.ok(kept < most, `${kept} bytes are kept for ${sockets.length} connections`);
});
