import { once } from 'node:events';
import http2 from 'node:http2';
import type { ClientHttp2Session, IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2';
import type { GatewayUnderTest, Teardown } from './harness.js';

/** An answer over HTTP/2. */
export interface Http2Answer {
  readonly headers: IncomingHttpHeaders & { ':status'?: number };
  /** A character for each byte. */
  readonly body: string;
}

/** Opens a connection of HTTP/2 to the gateway. */
export function connectHttp2(t: Teardown, gateway: GatewayUnderTest): ClientHttp2Session {
  const session = http2.connect(`https://127.0.0.1:${gateway.https}`, { ca: gateway.ca });
  session.on('error', () => undefined);
  t.teardown(() => {
    session.destroy();
  });
  return session;
}

/** Asks on a connection of HTTP/2. */
export async function fetchHttp2(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  body = '',
): Promise<Http2Answer> {
  const stream = session.request(headers, { endStream: body === '' });
  if (body !== '') stream.end(body, 'latin1');
  stream.setEncoding('latin1');
  let received = '';
  stream.on('data', (chunk: string) => (received += chunk));
  const [answer] = (await once(stream, 'response')) as [Http2Answer['headers']];
  if (!stream.readableEnded) await once(stream, 'end');
  return { headers: answer, body: received };
}
