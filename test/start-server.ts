import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Teardown } from './adapters/redis-server.js';

/** Starts an HTTP server on a free port of 127.0.0.1, and closes it when the test ends. @returns its URL */
export async function startServer(t: Teardown, respond: http.RequestListener): Promise<string> {
  const server = http.createServer(respond).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Forwards a request to the server with this URL, and the response to the client. */
export function forward(url: string, request: http.IncomingMessage, response: http.ServerResponse): void {
  const { method = '', headers } = request;
  request.pipe(
    http.request(url + (request.url ?? ''), { method, headers }, (upstreamResponse) => {
      response.writeHead(upstreamResponse.statusCode ?? 500, upstreamResponse.headers);
      upstreamResponse.pipe(response);
    }),
  );
}
