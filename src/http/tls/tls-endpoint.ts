import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import tls from 'node:tls';
import type { SecureContext, TLSSocket } from 'node:tls';
import type { ConnectionOrigin } from '../connection-facts.js';
import { compileContexts } from './secure-contexts.js';
import type { SecureContexts, TlsSettings } from './secure-contexts.js';
import { refusalOf } from './tls-refusal.js';
import type { TlsRefusal } from './tls-refusal.js';
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
