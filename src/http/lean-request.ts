import type { IncomingHttpHeaders } from 'node:http';
import { IncomingMessage } from '../node/http.js';

const none: IncomingHttpHeaders = Object.freeze({});

/**
 * A request as the gateway uses it.
 * - Its `headers` are empty but where it has an Expect. Node and Fastify ask each request for them, Node about Expect (and about
 *   Host, where its server has `requireHostHeader`), Fastify about a Connection that it does nothing with here, and to make
 *   them is 3 % of what a 401 costs. The gateway reads `rawHeaders`: Node's `headers` join or drop what is there twice.
 * - One that breaks off is closed, and never an 'error'. Node looks whether somebody listens for that, and emits it a tick later:
 *   where whoever listened is done by then, it would end the process.
 */
export class LeanRequest extends IncomingMessage {
  override _destroy(error: Error | null, closed: (error?: Error | null) => void): void {
    super._destroy(error, () => {
      closed();
    });
  }
}

Object.defineProperty(LeanRequest.prototype, 'headers', {
  get(this: LeanRequest): unknown {
    return hasExpect(this.rawHeaders) ? Reflect.get(IncomingMessage.prototype, 'headers', this) : none;
  },
});

function hasExpect(rawHeaders: readonly string[]): boolean {
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (name.length === 6 && name.toLowerCase() === 'expect') return true;
  }
  return false;
}
