import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import tls, { type SecureContext, type TLSSocket } from 'node:tls';
import type { ConnectionOrigin } from '../request/connection-facts.js';
import { compileContexts, type SecureContexts, type TlsSettings } from './secure-contexts.js';
import type { TlsMaterial } from './tls-material.js';

/** What TLS is beside its files, and how a handshake goes. */
export interface TlsEndpointSettings extends TlsSettings {
  readonly handshakeTimeoutSeconds: number;
}

/** Told what becomes of connections. */
interface HandshakeListener {
  readonly onSecure: (socket: TLSSocket, origin: ConnectionOrigin) => void;
  readonly onRefused: (why: TlsRefusal) => void;
}

/** How long ticket keys of the process's own are used, in milliseconds: what they encrypted is as safe as they are. */
const ticketKeysMaxAge = 24 * 3_600_000;

/** The TLS of a listener. Its material is replaced while it runs; connections that exist keep theirs. */
export class TlsEndpoint {
  #material: TlsMaterial;
  #contexts: SecureContexts;
  #ownTicketKeys = randomBytes(48);
  #ownTicketKeysSince = performance.now();
  readonly #settings: TlsEndpointSettings;
  readonly #servers: tls.Server[] = [];

  constructor(material: TlsMaterial, settings: TlsEndpointSettings) {
    this.#material = material;
    this.#settings = settings;
    this.#contexts = this.#compile(material);
  }

  get material(): TlsMaterial {
    return this.#material;
  }

  /** From the next handshake on. */
  replace(material: TlsMaterial): void {
    const contexts = this.#compile(material); // before anything is changed: it throws where OpenSSL does not take it
    this.#material = material;
    this.#contexts = contexts;
    for (const server of this.#servers) server.setSecureContext(contexts.defaults);
  }

  /** Replaces ticket keys of the process's own when they are old. */
  renewTicketKeys(): void {
    const now = performance.now();
    if (now - this.#ownTicketKeysSince < ticketKeysMaxAge) return;
    this.#ownTicketKeys = randomBytes(48);
    this.#ownTicketKeysSince = now;
    this.replace(this.#material);
  }

  /** Returns what makes a handshake on a connection whose origin is known. */
  accept({ onSecure, onRefused }: HandshakeListener): (socket: Socket, origin: ConnectionOrigin) => void {
    const { handshakeTimeoutSeconds, clientCertificates } = this.#settings;
    const server = tls.createServer({
      ...this.#contexts.defaults,
      handshakeTimeout: handshakeTimeoutSeconds * 1000,
      ALPNProtocols: ['http/1.1', 'http/1.0'],
      // Node stops each handshake to ask, also where there is nothing to choose from.
      ...(this.#material.certificates.length > 1 && {
        SNICallback: (serverName: string, done: (error: null, context?: SecureContext) => void) => {
          done(null, this.#contexts.find(serverName));
        },
      }),
      requestCert: clientCertificates !== 'none',
      rejectUnauthorized: clientCertificates === 'require',
    });
    this.#servers.push(server);
    /** By both ends of the connection: a TLS socket does not tell which TCP socket is below it. */
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
      socket.allowHalfOpen = false; // who hangs up during a handshake is gone
      server.emit('connection', socket);
    };
  }

  #compile(material: TlsMaterial): SecureContexts {
    return compileContexts(material, material.ticketKeys ?? this.#ownTicketKeys, this.#settings);
  }
}

function endsOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): string {
  return [remoteAddress, remotePort, localAddress, localPort].join(' ');
}

/** A certificate may be left out where it is only requested; one that is shown has to be good. */
function showsBadCertificate(socket: TLSSocket, wanted: string): boolean {
  return wanted === 'request' && !socket.authorized && Object.keys(socket.getPeerCertificate()).length > 0;
}

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

/** Says why a handshake failed. */
function refusalOf(error: NodeJS.ErrnoException, socket: TLSSocket): TlsRefusal {
  // Node types it as an error; it is a code, and null where nothing was wrong with the client's certificate.
  if (socket.authorizationError) return 'client_certificate'; // eslint-disable-line @typescript-eslint/no-unnecessary-condition
  return known[error.code ?? ''] ?? 'other';
}
