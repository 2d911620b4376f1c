import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Teardown } from '../edge/harness.js';

/** The behaviours of the service, which a request selects by its `x-answer` header. */
export const serviceAnswers = {
  early: (_request, response) => response.end('{}'),
  whole: (request, response) => request.resume().once('end', () => response.end('{}')),
  late: (request, response) => request.resume().once('end', () => setTimeout(() => response.end('{}'), 5)),
  pieces: (request, response) => {
    response.write('{');
    request.resume().once('end', () => setTimeout(() => response.end('}'), 3));
  },
  large: (_request, response) => response.end(Buffer.alloc(300_000, 0x61)),
  broken: (request, response) => {
    response.write('{');
    request.resume().once('end', () => request.socket.resetAndDestroy());
  },
  never: (request) => request.socket.destroy(),
} satisfies Record<string, (request: http.IncomingMessage, response: http.ServerResponse) => unknown>;

/** A service that may respond early and records each request as soon as its head has arrived. */
export interface HastyService {
  readonly url: string;
  /** Ids of the received requests. */
  readonly ids: Set<string>;
}

export async function startHastyService(t: Teardown): Promise<HastyService> {
  const ids = new Set<string>();
  const server = http.createServer((request, response) => {
    ids.add(String(request.headers['x-request-id']));
    const how = String(request.headers['x-answer']) as keyof typeof serviceAnswers;
    serviceAnswers[how](request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, ids };
}
