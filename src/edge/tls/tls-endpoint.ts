import type { Socket } from 'node:net';
import tls, { type SecureContext, type TLSSocket } from 'node:tls';
import { showsBadCertificate, TlsCredentials } from '../../tls/credentials.js';
import type { TlsSettings } from '../../tls/secure-contexts.js';
import type { TlsMaterial } from '../../tls/tls-material.js';
import type { ConnectionOrigin } from '../request/connection-facts.js';

/** The handshake timeout, and the TLS settings other than the certificate and key files. */
export interface TlsEndpointSettings extends TlsSettings {
  readonly handshakeTimeoutSeconds: number;
}

/** Callbacks for the results of handshakes. */
interface HandshakeListener {
  readonly onSecure: (socket: TLSSocket, origin: ConnectionOrigin) => void;
  readonly onRefused: (why: TlsRefusal) => void;
}

/** The TLS endpoint of a listener. */
export class TlsEndpoint extends TlsCredentials {
  readonly #settings: TlsEndpointSettings;

  constructor(material: TlsMaterial, settings: TlsEndpointSettings) {
    super(material, settings);
    this.#settings = settings;
  }

  /**
   * Returns a function that performs the TLS handshake on a connection. On success, `onSecure` gets the TLS socket and
   * the connection's origin (its source address).
   */
  accept({ onSecure, onRefused }: HandshakeListener): (socket: Socket, origin: ConnectionOrigin) => void {
    const { handshakeTimeoutSeconds, clientCertificates } = this.#settings;
    const server = tls.createServer({
      ...this.contexts.defaults,
      handshakeTimeout: handshakeTimeoutSeconds * 1000,
      ALPNProtocols: ['http/1.1', 'http/1.0'],
      // Set only if there are several certificates, because Node suspends each handshake for this callback.
      ...(this.material.certificates.length > 1 && {
        SNICallback: (serverName: string, done: (error: null, context?: SecureContext) => void) => {
          done(null, this.contexts.find(serverName));
        },
      }),
      requestCert: clientCertificates !== 'none',
      rejectUnauthorized: clientCertificates === 'require',
    });
    this.keepCurrent(server);
    /**
     * Origins of open connections. The key of each entry is made of both addresses and ports of the connection, because
     * a TLS socket does not expose the TCP socket below it.
     */
    const origins = new Map<string, ConnectionOrigin>();
    server.on('secureConnection', (socket) => {
      const origin = origins.get(endsOf(socket));
      if (origin === undefined) socket.destroy();
      else if (showsBadCertificate(socket, clientCertificates)) {
        socket.destroy();
        onRefused('client_certificate');
      } else onSecure(socket, origin);
    });
    server.on('tlsClientError', (error: NodeJS.ErrnoException, socket) => {
      onRefused(refusalOf(error, socket));
      socket.destroy();
    });
    return (socket, origin) => {
      const ends = endsOf(socket);
      origins.set(ends, origin);
      socket.once('close', () => {
        if (origins.get(ends) === origin) origins.delete(ends);
      });
      socket.allowHalfOpen = false; // a client that half-closes during a handshake is gone
      server.emit('connection', socket);
    };
  }
}

function endsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return [remoteAddress, remotePort, localAddress, localPort].join(' ');
}

/**
 * Reasons for failed handshakes. The set is fixed, because clients must not be able to create new metric label values.
 */
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

/** A reason for a failed handshake. */
type TlsRefusal = (typeof tlsRefusals)[number];

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

/** Maps a handshake error to its reason. */
function refusalOf(error: NodeJS.ErrnoException, socket: TLSSocket): TlsRefusal {
  // Node's type is Error, but the value is an error code, or null if the client certificate has no problem.
  if (socket.authorizationError) return 'client_certificate'; // eslint-disable-line @typescript-eslint/no-unnecessary-condition
  return known[error.code ?? ''] ?? 'other';
}
