import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/** Node's parser, as far as it is asked for the packet that it is in. */
interface PacketSource {
  getCurrentBuffer?(): Buffer;
}

/**
 * Says whether a request that just arrived names RTSP as its protocol. Node's parser takes `GET / RTSP/1.0` for HTTP/1.0
 * and keeps only the number. Asked of 1.0 alone, which is what every client of RTSP says, because it copies the packet.
 */
export function speaksRtsp({ method = '', url = '', httpVersion, socket }: IncomingMessage): boolean {
  if (httpVersion !== '1.0') return false;
  const { parser } = socket as Socket & { readonly parser?: PacketSource | null };
  return parser?.getCurrentBuffer?.().includes(`${method} ${url} RTSP/`, 0, 'latin1') === true;
}
