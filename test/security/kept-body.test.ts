import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { followRequestLines, namesHttp } from '../../src/http/request-lines.js';

// A body that came in one packet with its head was kept until the next packet of its connection: 64 KiB of payment data
// for each idle connection, also of callers without a key.
t.test('nothing of a body is kept once it has come', (t) => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const sockets: Socket[] = [];
  const length = 60_000;
  const head = `POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: ${length}\r\n\r\n`;
  collect();
  const before = process.memoryUsage().arrayBuffers;
  for (let count = 0; count < 300; count += 1) {
    const socket = new Socket();
    sockets.push(socket);
    followRequestLines(socket, 24_576);
    socket.emit('data', Buffer.concat([Buffer.from(head), Buffer.alloc(length)]));
    const told = { method: 'POST', url: '/x', rawHeaders: ['Host', 'a', 'Content-Length', String(length)] };
    namesHttp(Object.assign(new IncomingMessage(socket), told));
  }
  collect();
  const kept = process.memoryUsage().arrayBuffers - before;
  t.ok(kept < (sockets.length * length) / 4, `${kept} bytes are kept for ${sockets.length} connections`);
  t.end();
});
