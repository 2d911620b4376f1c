import { EventEmitter } from 'node:events';
import type { ServerHttp2Session } from 'node:http2';
import { setTimeout as wait } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';
import t from 'tap';
import { closeBrokenSession } from '../../src/http/http2/close-broken-session.js';
import { watchStillness } from '../../src/http/tls/still-connection.js';

/** A connection whose session has ended while something was still being written. */
class Connection extends EventEmitter {
  readonly _parent = { _handle: { bytesRead: 0, bytesWritten: 0, writeQueueSize: 100_000 } };
  readonly bytesRead = 0;
  destroyed = false;

  destroy(): void {
    this.destroyed = true;
    this.emit('close');
  }
}

function watch(closed: boolean): Connection {
  const connection = new Connection();
  const session = { destroyed: true, closed } as Partial<ServerHttp2Session> as ServerHttp2Session;
  closeBrokenSession(session, connection as unknown as TLSSocket, () => false, 3_500);
  return connection;
}

t.test('a client may take its time over the rest of a session that ended well, and of no other', async (t) => {
  const [endedWell, broken] = [watch(true), watch(false)];
  await wait(3_000);
  t.ok(broken.destroyed);
  t.notOk(endedWell.destroyed);
  await wait(3_000);
  t.ok(endedWell.destroyed);
});

// What is given by a timer goes out at the end of its turn. A look in between took the connection for broken, and closed it.
t.test('a connection is looked at when all is written that its turn has to write', async (t) => {
  const connection = new Connection();
  let waiting = false;
  const giving = setInterval(() => {
    waiting = true;
    setImmediate(() => (waiting = false));
  }, 1_000);
  const seen: boolean[] = [];
  const end = watchStillness(connection as unknown as TLSSocket, () => seen.push(waiting));
  await wait(3_500);
  end();
  clearInterval(giving);
  t.same(seen, [false, false, false]);
});
