import { once } from 'node:events';
import { Socket } from 'node:net';
import t from 'tap';
import type { Exchange } from '../../src/edge/request/exchange.js';
import { awaitTurn, endTurn, newestExchange } from '../../src/edge/connections/pipeline.js';

/** A completely received request that is being processed. */
function exchangeOn(socket: Socket, shouldKeepAlive: boolean): Exchange {
  const exchange = { request: { socket, complete: true }, response: { socket, shouldKeepAlive }, over: false };
  return exchange as unknown as Exchange;
}

t.test('the last exchange of a closing connection is known until the connection closes, then released', async (t) => {
  const socket = new Socket();
  const last = exchangeOn(socket, false);
  awaitTurn(last, () => undefined);
  endTurn(last);
  t.equal(newestExchange(socket), last, 'later bytes are still judged against it');
  socket.destroy();
  await once(socket, 'close');
  t.equal(newestExchange(socket), null);
});

t.test('a keep-alive connection does not retain a finished exchange', (t) => {
  const socket = new Socket();
  const first = exchangeOn(socket, true);
  awaitTurn(first, () => undefined);
  t.equal(newestExchange(socket), first);
  endTurn(first);
  t.equal(newestExchange(socket), null);
  t.end();
});
