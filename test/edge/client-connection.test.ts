import { once } from 'node:events';
import { Socket } from 'node:net';
import t from 'tap';
import type { Exchange } from '../../src/edge/request/exchange.js';
import { connectionOf } from '../../src/edge/connections/client-connection.js';

/** A completely received request that is being processed. */
function exchangeOn(socket: Socket, shouldKeepAlive: boolean): Exchange {
  const exchange = { request: { socket, complete: true }, response: { socket, shouldKeepAlive }, over: false };
  return exchange as unknown as Exchange;
}

t.test('the last exchange of a closing connection is known until the connection closes, then released', async (t) => {
  const socket = new Socket();
  const last = exchangeOn(socket, false);
  const connection = connectionOf(socket);
  connection.awaitTurn(last, () => undefined);
  connection.endTurn(last);
  t.equal(connection.newest, last, 'later bytes are still judged against it');
  socket.destroy();
  await once(socket, 'close');
  t.equal(connection.newest, null);
});

t.test('a keep-alive connection does not retain a finished exchange', (t) => {
  const socket = new Socket();
  const first = exchangeOn(socket, true);
  const connection = connectionOf(socket);
  t.equal(connectionOf(socket), connection, 'one object exists for each connection');
  connection.awaitTurn(first, () => undefined);
  t.equal(connection.newest, first);
  connection.endTurn(first);
  t.equal(connection.newest, null);
  t.end();
});
