import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Teardown } from '../edge/harness.js';
import { startServer } from '../start-server.js';

/** The behaviours of the service, which a request selects by its `x-answer` header. */
export const serviceBehaviours = {
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
} satisfies Record<string, (request: IncomingMessage, response: ServerResponse) => unknown>;

/** A service that may respond early and records each request as soon as its head has arrived. */
export interface HastyService {
  readonly url: string;
  /** Ids of the received requests. */
  readonly ids: Set<string>;
}

export async function startHastyService(t: Teardown): Promise<HastyService> {
  const ids = new Set<string>();
  const url = await startServer(t, (request, response) => {
    ids.add(String(request.headers['x-request-id']));
    const how = String(request.headers['x-answer']) as keyof typeof serviceBehaviours;
    serviceBehaviours[how](request, response);
  });
  return { url, ids };
}
