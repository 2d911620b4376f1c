import { once } from 'node:events';
import { Socket } from 'node:net';
import t from 'tap';
import type { Exchange } from '../../src/edge/request/exchange.js';
import { awaitTurn, endTurn, newestExchange } from '../../src/edge/connections/pipeline.js';

/** A request that has come as a whole, and is carried out. */
function exchangeOn(socket: Socket, shouldKeepAlive: boolean): Exchange {
  const exchange = { request: { socket, complete: true }, response: { socket, shouldKeepAlive }, over: false };
  return exchange as unknown as Exchange;
}

t.test('the last request of a connection is known until that is closed, and not kept any longer', async (t) => {
  const socket = new Socket();
  const last = exchangeOn(socket, false);
  awaitTurn(last, () => undefined);
  endTurn(last);
  t.equal(newestExchange(socket), last, 'what comes behind it is still judged by it');
  socket.destroy();
  await once(socket, 'close');
  t.equal(newestExchange(socket), null);
});

t.test('a request is not kept by a connection that goes on', (t) => {
  const socket = new Socket();
  const first = exchangeOn(socket, true);
  awaitTurn(first, () => undefined);
  t.equal(newestExchange(socket), first);
  endTurn(first);
  t.equal(newestExchange(socket), null);
  t.end();
});
