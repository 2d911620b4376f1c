import { readFileSync } from 'node:fs';
import net from 'node:net';
import type { Socket } from 'node:net';
import tls from 'node:tls';

// A child process that holds idle connections from one address. Once all are connected, it reports how many are open.

/** The connections that the child opens. */
export interface IdleOrder {
  readonly port: number;
  readonly from: string;
  readonly count: number;
  /** File of the trusted CA certificate; null: plain TCP. */
  readonly caFile: string | null;
  /** The request that each connection sends before it becomes idle; empty: no request. */
  readonly request: string;
}

const atATime = 32;
const order = JSON.parse(process.argv[2] ?? '') as IdleOrder;
const { port, from, count, caFile, request } = order;
const secureContext = caFile === null ? null : tls.createSecureContext({ ca: readFileSync(caFile) });
const sockets: Socket[] = [];
let closed = 0;

await Promise.all(Array.from({ length: atATime }, (_, index) => openEach(index)));
process.send?.({ open: sockets.length - closed });
process.once('disconnect', () => process.exit());

async function openEach(first: number): Promise<void> {
  for (let index = first; index < count; index += atATime) {
    const plain = net.connect({ port, host: '127.0.0.1', localAddress: from });
    const socket =
      secureContext === null ? plain : tls.connect({ socket: plain, secureContext, servername: 'localhost' });
    plain.on('error', () => undefined);
    socket.on('error', () => undefined).once('close', () => (closed += 1));
    sockets.push(socket);
    await happened(socket, secureContext === null ? 'connect' : 'secureConnect');
    if (request === '') continue;
    socket.write(request);
    await happened(socket, 'data');
    socket.resume();
  }
}

/**
 * Resolves when the event happens or the connection closes. So a refused connection causes no error here; `closed`
 * counts it.
 */
function happened(socket: Socket, event: string): Promise<void> {
  return new Promise((resolve) => {
    socket.once(event, resolve).once('close', resolve);
  });
}
