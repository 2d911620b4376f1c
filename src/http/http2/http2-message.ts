import { Http2ServerRequest, Http2ServerResponse } from 'node:http2';

/** The request as HTTP/2's, which passes for one of HTTP/1.1 everywhere else; null where it is none. */
export function http2RequestOf(request: object): Http2ServerRequest | null {
  return request instanceof Http2ServerRequest ? request : null;
}

/** The response as HTTP/2's; null where it is none. */
export function http2ResponseOf(response: object): Http2ServerResponse | null {
  return response instanceof Http2ServerResponse ? response : null;
}
