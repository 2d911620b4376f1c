import { once } from 'node:events';
import tls from 'node:tls';
import { ResponseReader } from './response-reader.js';
import type { Target } from './connection.js';
import type { Load, LoadOrder, LoadResult } from './load.js';

/** Concurrent connections: a handshake is so much work that more connections would only wait. */
const atOnce = 16;

/**
 * Returns a load that opens a new TLS connection for each request.
 * @param resumes whether each connection resumes the TLS session of an earlier one
 */
export function openNewConnections(target: Target, resumes: boolean): Load {
  const held: Held = { session: null };
  return { run: (order) => run(target, resumes ? held : null, order), close: () => undefined };
}

interface Held {
  session: Buffer | null;
}

async function run(target: Target, held: Held | null, order: LoadOrder): Promise<LoadResult> {
  const begun = performance.now();
  const end = begun + order.seconds * 1000;
  let requests = 0;
  const ask = async (): Promise<void> => {
    while (performance.now() < end) {
      await askOnce(target, held, order);
      requests += 1;
    }
  };
  if (held?.session === null) await askOnce(target, held, order);
  await Promise.all(Array.from({ length: atOnce }, ask));
  return { requests, seconds: (performance.now() - begun) / 1000, latencies: [] };
}

async function askOnce({ port, ca }: Target, held: Held | null, { next, status }: LoadOrder): Promise<void> {
  const session = held?.session ?? null;
  const socket = tls.connect({
    ...{ port, host: '127.0.0.1', servername: 'localhost' },
    ...(ca === null ? {} : { ca }),
    ...(session === null ? {} : { session }),
  });
  const reader = new ResponseReader();
  const received: { status: number | null } = { status: null };
  socket.on('session', (fresh: Buffer) => {
    if (held !== null) held.session = fresh;
  });
  socket.on('data', (chunk: Buffer) => {
    received.status = reader.take(chunk);
    if (received.status !== null) socket.end();
  });
  socket.once('secureConnect', () => {
    if (session !== null && !socket.isSessionReused()) socket.destroy(new Error('the session was not resumed'));
    else socket.write(next(), 'latin1');
  });
  await once(socket, 'close');
  if (received.status !== status) throw new Error(`answered ${String(received.status)} in place of ${status}`);
}
