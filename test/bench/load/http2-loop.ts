import { once } from 'node:events';
import http2 from 'node:http2';
import type { Target } from './connection.js';
import type { Load, LoadOrder, LoadResult } from './load.js';

/** Requests at once on each connection. */
const streams = 8;

/** Opens HTTP/2 connections that have as many requests under way together as this. */
export async function openHttp2Loop({ port, ca }: Target, count: number): Promise<Load> {
  const open = async (): Promise<http2.ClientHttp2Session> => {
    const session = http2.connect(`https://localhost:${port}`, ca === null ? {} : { ca });
    await once(session, 'connect');
    return session;
  };
  const sessions = await Promise.all(Array.from({ length: Math.ceil(count / streams) }, open));
  return {
    run: (order) => run(sessions, order),
    close: () => {
      for (const session of sessions) session.destroy();
    },
  };
}

async function run(sessions: readonly http2.ClientHttp2Session[], order: LoadOrder): Promise<LoadResult> {
  const headersOf = headersReader();
  const begun = performance.now();
  const end = begun + order.seconds * 1000;
  let requests = 0;
  const ask = async (session: http2.ClientHttp2Session): Promise<void> => {
    while (performance.now() < end) {
      const stream = session.request(headersOf(order.next()));
      let status: unknown;
      stream.once('response', (headers) => (status = headers[':status'])).resume();
      await once(stream, 'close');
      if (status !== order.status) throw new Error(`answered ${String(status)} in place of ${order.status}`);
      requests += 1;
    }
  };
  await Promise.all(sessions.flatMap((session) => Array.from({ length: streams }, () => ask(session))));
  return { requests, seconds: (performance.now() - begun) / 1000, latencies: [] };
}

/** Reads a request of HTTP/1.1 without a body as the headers of one of HTTP/2, once for each. */
function headersReader(): (request: string) => http2.OutgoingHttpHeaders {
  const known = new Map<string, http2.OutgoingHttpHeaders>();
  return (request) => {
    const before = known.get(request);
    if (before !== undefined) return before;
    const [line = '', ...fields] = request.trimEnd().split('\r\n');
    const [method, target] = line.split(' ');
    const pairs = fields.map((field) => field.split(': ') as [string, string]);
    const { host, ...others } = Object.fromEntries(pairs);
    const headers = { ':method': method, ':path': target, ':authority': host, ...others };
    known.set(request, headers);
    return headers;
  };
}
