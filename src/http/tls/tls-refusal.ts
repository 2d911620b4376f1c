import type { TLSSocket } from 'node:tls';

/** Why a handshake came to nothing, in few words, for a metric: whoever connects must not be able to make new ones. */
export const tlsRefusals = [
  'plain_http',
  'version',
  'cipher',
  'alpn',
  'timeout',
  'hang_up',
  'client_certificate',
  'other',
] as const;

/** One of them. */
export type TlsRefusal = (typeof tlsRefusals)[number];

const known: Readonly<Record<string, TlsRefusal>> = {
  ERR_SSL_HTTP_REQUEST: 'plain_http',
  ERR_SSL_HTTPS_PROXY_REQUEST: 'plain_http',
  ERR_SSL_UNSUPPORTED_PROTOCOL: 'version',
  ERR_SSL_VERSION_TOO_LOW: 'version',
  ERR_SSL_NO_SHARED_CIPHER: 'cipher',
  ERR_SSL_NO_SUITABLE_SIGNATURE_ALGORITHM: 'cipher',
  ERR_SSL_NO_SUITABLE_KEY_SHARE: 'cipher',
  ERR_SSL_NO_APPLICATION_PROTOCOL: 'alpn',
  ERR_TLS_HANDSHAKE_TIMEOUT: 'timeout',
  ECONNRESET: 'hang_up',
  EPIPE: 'hang_up',
  ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE: 'client_certificate',
};

/** Says why a handshake failed. */
export function refusalOf(error: NodeJS.ErrnoException, socket: TLSSocket): TlsRefusal {
  // Node types it as an error; it is a code, and null where nothing was wrong with the client's certificate.
  if (socket.authorizationError) return 'client_certificate'; // eslint-disable-line @typescript-eslint/no-unnecessary-condition
  return known[error.code ?? ''] ?? 'other';
}
