import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { isKnownMethod } from './known-method.js';

/** Node's parser, as far as it is asked for the packet that it is in. */
interface PacketSource {
  getCurrentBuffer?(): Buffer;
}

/**
 * Says whether a request that just arrived names another protocol than HTTP. Node's parser takes `GET / RTSP/1.0` and
 * `SOURCE / ICE/1.0` for HTTP/1.0 and keeps only the number. Methods that RTSP alone has tell it by themselves; of the
 * others 1.0 alone is looked at, which is what every client of them says, because that copies the packet.
 */
export function speaksRtsp({ method = '', url = '', httpVersion, socket }: IncomingMessage): boolean {
  if (!isKnownMethod(method)) return true;
  if (httpVersion !== '1.0') return false;
  const { parser } = socket as Socket & { readonly parser?: PacketSource | null };
  const packet = parser?.getCurrentBuffer?.();
  return ['RTSP', 'ICE'].some((name) => packet?.includes(`${method} ${url} ${name}/`, 0, 'latin1') === true);
}
